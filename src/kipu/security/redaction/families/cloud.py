"""Keys of clouds and of what runs in them."""

from __future__ import annotations

from kipu.security.redaction.checksum import is_age_key
from kipu.security.redaction.rule import shape

_UUID = r"[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}"

RULES = (
    shape("aws-access-key", "AKIA ASIA ABIA ACCA", pattern=r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    shape("aws-session-token", "FwoGZXIv IQoJb3Jp", pattern=r"(?:FwoGZXIv|IQoJb3Jp)[A-Za-z0-9+/]{80,}={0,2}"),
    shape("aws-bedrock-key", "ABSK", pattern=r"ABSK[A-Za-z0-9+/]{80,}={0,2}"),
    shape("google-api-key", "AIza", pattern=r"AIza[A-Za-z0-9_-]{35}"),
    shape("google-client-secret", "GOCSPX-", pattern=r"GOCSPX-[A-Za-z0-9_-]{24,40}"),
    shape("google-access-token", "ya29.", pattern=r"ya29\.[A-Za-z0-9._-]{20,}"),
    shape("google-refresh-token", "1//0", pattern=r"1//0[A-Za-z0-9_-]{30,}"),
    shape("azure-storage-key", "AccountKey=", pattern=r"AccountKey=([A-Za-z0-9+/]{40,}={0,2})"),
    shape("azure-shared-access-key", "SharedAccessKey=", pattern=r"SharedAccessKey=([A-Za-z0-9+/]{40,}={0,2})"),
    shape("azure-sas-signature", "sig=", pattern=r"sig=([A-Za-z0-9%+/_-]{40,}(?:=|%3[dD])?)"),
    shape("azure-client-secret", "Q~", pattern=r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,36}", lead=4),
    shape("azure-devops-token", "AZDO", pattern=r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", lead=76),
    shape("azure-service-key", "JQQJ99", pattern=r"[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{26}", lead=52),
    shape("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", pattern=r"do[opr]_v1_[a-f0-9]{64}"),
    shape("digitalocean-spaces-key", "DO00", pattern=r"DO00[A-Z0-9]{16}"),
    shape("alibaba-access-key", "LTAI", pattern=r"LTAI[A-Za-z0-9]{12,24}"),
    shape("tencent-secret-id", "AKID", pattern=r"AKID[A-Za-z0-9]{32}"),
    shape("huawei-access-key", "HST", pattern=r"HST[A-Z0-9]{17}"),
    shape("yandex-key", "AQVN y0_ t1.9eu", pattern=r"(?:AQVN[A-Za-z0-9_-]{30,40}|y0_[A-Za-z0-9_-]{40,}|t1\.9eu[A-Za-z0-9._-]{60,})"),
    shape("scaleway-access-key", "SCW", pattern=r"SCW[A-Z0-9]{17}"),
    shape("cloudflare-origin-key", "v1.0-", pattern=r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}"),
    shape("cloudflare-token", "cfat_ cfut_ cfk_", pattern=r"cf(?:at|ut|k)_[A-Za-z0-9_-]{36,}"),
    shape("heroku-key", "HRKU-", pattern=r"HRKU-[A-Za-z0-9_-]{36,}"),
    shape("fly-token", "fo1_ fm1a_ fm1r_ fm2_", pattern=r"(?:fo1_[A-Za-z0-9_-]{40,}|fm(?:1[ar]|2)_[A-Za-z0-9+/=_-]{60,})"),
    shape("vercel-token", "vercel_blob_rw_ vcp_ vck_ vca_ vci_", pattern=r"(?:vercel_blob_rw_[A-Za-z0-9_]{20,}|vc[pkai]_[A-Za-z0-9]{24,})"),
    shape("netlify-token", "nfp_ nfo_ nfc_ nfu_ nfb_", pattern=r"nf[pocub]_[A-Za-z0-9]{36,}"),
    shape("render-key", "rnd_", pattern=r"rnd_[A-Za-z0-9]{28,}"),
    shape("railway-token", "rw_Fe26", pattern=r"rw_Fe26\.2\*\*[A-Za-z0-9*._-]{60,}"),
    shape("pulumi-token", "pul-", pattern=r"pul-[a-f0-9]{40}"),
    shape("terraform-token", ".atlasv1.", pattern=r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}", lead=14),
    shape("vault-token", "hvs. hvb. hvr.", pattern=r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    shape("doppler-token", "dp.", pattern=r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    shape("infisical-token", "st.", pattern=rf"st\.{_UUID}\.[a-f0-9]{{32}}\.[a-f0-9]{{32}}", gate=rb"st\.[a-fA-F0-9]{8}-"),
    shape("onepassword-token", "ops_eyJ", pattern=r"ops_eyJ[A-Za-z0-9+/_=-]{100,}"),
    shape("onepassword-secret-key", "A3-", pattern=r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5}-){4,5}[A-Z0-9]{5}"),
    shape("age-secret-key", "AGE-SECRET-KEY-1", pattern=r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}", check=is_age_key),
    shape("openshift-token", "sha256~", pattern=r"sha256~[A-Za-z0-9_-]{43}"),
    shape("rancher-token", "token-", pattern=r"token-[a-z0-9]{5}:[a-z0-9]{54}"),
    shape("tailscale-key", "tskey-", pattern=r"tskey-(?:[a-z]+-)?[A-Za-z0-9]{6,}-?[A-Za-z0-9]{12,}"),
    shape("teleport-token", "tctl_", pattern=r"tctl_[A-Za-z0-9]{30,}"),
    shape("supabase-key", "sbp_ sb_secret_", pattern=r"(?:sbp_(?:v0_)?[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,})"),
    shape("neon-key", "napi_", pattern=r"napi_[a-z0-9]{40,}"),
    shape("planetscale-token", "pscale_", pattern=r"pscale_(?:tkn|pw|oauth|api)_[A-Za-z0-9_.=-]{32,}"),
    shape("databricks-token", "dapi dose dkea", pattern=r"(?:dapi|dose|dkea)[a-f0-9]{32}(?:-[0-9])?"),
    shape("upstash-token", "upstash_", pattern=r"upstash_[a-z]*_?[A-Za-z0-9]{30,}"),
    shape("mongodb-atlas-secret", "mdb_sa_sk_", pattern=r"mdb_sa_sk_[A-Za-z0-9_-]{40,}"),
    shape("confluent-key", "cflt", pattern=r"cflt[A-Za-z0-9+/]{56,}"),
)  # fmt: skip
