"""Keys of many smaller makers: those whose marks alone would not tell."""

from __future__ import annotations

from kipu.security.redaction.plausible import changes_of, is_plausible, is_random
from kipu.security.redaction.rule import shape

_UUID = r"[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}"


def _is_mixed(found: bytes) -> bool:
    return is_plausible(found) and changes_of(found) >= 0.3


RULES = (
    shape("octopus-key", "API-", pattern=r"API-[A-Z0-9]{25,27}", check=_is_mixed),
    shape("intra42-secret", "s-s4t2 u-s4t2", pattern=r"[su]-s4t2(?:ud|af)-[a-f0-9]{64}"),
    shape("tableau-token", "==:", pattern=r"[A-Za-z0-9+/]{22}==:[A-Za-z0-9]{32}", lead=22),
    shape("salesforce-refresh-token", "5AEP861", pattern=r"5AEP861[a-zA-Z0-9._=]{80,}"),
    shape("yandex-static-key", "YCA YCM YCN YCO YCP", pattern=r"YC[A-Z][a-zA-Z0-9_-]{37}", check=is_random),
    shape("locationiq-key", "pk.", pattern=r"pk\.[a-f0-9]{32}"),
    shape("authress-key", ".acc-", lead=48,
          pattern=r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc-[a-z0-9-]{10,32}\.[a-zA-Z0-9+/_=-]{30,120}"),
    shape("adobe-secret", "p8e-", pattern=r"p8e-[a-zA-Z0-9_-]{32}"),
    shape("frameio-token", "fio-u-", pattern=r"fio-u-[a-zA-Z0-9_=-]{64}"),
    shape("gocardless-token", "live_ sandbox_", check=is_random, gate=rb".{5,8}[A-Za-z0-9_=-]{38}",
          pattern=r"(?:live|sandbox)_[a-zA-Z0-9_=-]{40}"),
    shape("harness-token", "pat. sat.", pattern=r"[ps]at\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9]{24}\.[a-zA-Z0-9]{20}"),
    shape("bannerbear-key", "bb_pr_ bb_ma_", pattern=r"bb_(?:pr|ma)_[a-f0-9]{30}"),
    shape("flexport-token", "shltm_", pattern=r"shltm_[0-9a-zA-Z_-]{40}"),
    shape("salad-key", "salad_cloud_", pattern=r"salad_cloud_[0-9A-Za-z]{1,7}_[0-9A-Za-z]{7,235}"),
    shape("cody-token", "slk_", pattern=r"slk_[a-f0-9]{64}"),
    shape("zoho-token", "1000.", pattern=r"1000\.[a-f0-9]{32}\.[a-f0-9]{32}"),
    shape("ubidots-token", "BBFF-", pattern=r"BBFF-[0-9a-zA-Z]{30}"),
    shape("scalingo-token", "tk-us-", pattern=r"tk-us-[A-Za-z0-9_-]{48}"),
    shape("bitbucket-server-token", "BBDC-", pattern=r"BBDC-[A-Za-z0-9+/@_-]{40,50}"),
    shape("robinhood-key", "rh-api-", pattern=rf"rh-api-{_UUID}"),
    shape("stripe-client-secret", "pi_ seti_", gate=rb"(?:pi|seti)_[a-zA-Z0-9]{20,28}_secret_",
          pattern=r"(?:pi|seti)_[a-zA-Z0-9]{20,28}_secret_[a-zA-Z0-9]{20,30}"),
    shape("dependency-track-key", "odt_", pattern=r"odt_[A-Za-z0-9]{32,255}"),
    shape("ionic-token", "ion_", pattern=r"ion_[a-zA-Z0-9]{42}"),
    shape("stackhawk-key", "hawk.", pattern=r"hawk\.[0-9A-Za-z_-]{20}\.[0-9A-Za-z_-]{20}"),
    shape("alchemy-key", "alcht_", pattern=r"alcht_[A-Za-z0-9_-]{28,32}"),
    shape("inngest-key", "signkey-", pattern=r"signkey-(?:[a-z]+-)?[a-f0-9]{32,64}"),
    shape("dub-key", "dub_", pattern=r"dub_[A-Za-z0-9]{24}", check=_is_mixed),
    shape("depot-token", "depot_", pattern=r"depot_(?:project|org|user|token)?_?[a-f0-9]{64}"),
    shape("trigger-key", "tr_prod_ tr_dev_ tr_stg_", pattern=r"tr_(?:prod|dev|stg)_[A-Za-z0-9]{20,24}"),
)  # fmt: skip
