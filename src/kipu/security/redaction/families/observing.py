"""Keys of what watches programs: logs, metrics, errors, switches."""

from __future__ import annotations

from kipu.security.redaction.checksum import is_checked_hex
from kipu.security.redaction.rule import shape

_UUID = r"[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}"

RULES = (
    shape("grafana-service-token", "glsa_", pattern=r"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}", check=is_checked_hex),
    shape("grafana-cloud-token", "glc_eyJ", pattern=r"glc_eyJ[A-Za-z0-9+/=]{40,}"),
    shape("newrelic-key", "NRAK- NRII- NRJS- NRRA- NRAA-", pattern=r"NR(?:AK|II|JS|RA|AA)-[A-Za-z0-9-]{19,40}"),
    shape("sentry-token", "sntrys_ sntryu_", pattern=r"(?:sntrys_eyJ[A-Za-z0-9+/=_-]{60,}|sntryu_[a-f0-9]{64})"),
    shape("sentry-dsn", "ingest.", pattern=r"://([a-f0-9]{32})@o[0-9]+\.ingest\.", lead=70),
    shape("dynatrace-token", "dt0", pattern=r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    shape("launchdarkly-key", "sdk- mob- api-", pattern=rf"(?:sdk|mob|api)-{_UUID}"),
    shape("prefect-key", "pnu_ pnb_", pattern=r"pn[ub]_[A-Za-z0-9]{36}"),
    shape("honeycomb-key", "hcaik_ hcalk_ hcxik_ hcxmk_", pattern=r"hc[ax][ilm]k_[a-z0-9]{26,}"),
    shape("datadog-key", "ddapp_ ddpat_", pattern=r"dd(?:app|pat)_[A-Za-z0-9]{30,}"),
    shape("posthog-key", "phx_ phs_", pattern=r"ph[xs]_[A-Za-z0-9]{40,}"),
    shape("statsig-key", "secret-", pattern=r"secret-[A-Za-z0-9]{40,50}"),
    shape("pagerduty-key", "pdus+", pattern=r"pdus\+_[A-Za-z0-9+/_-]{20,}"),
    shape("axiom-token", "xaat- xapt-", pattern=rf"xa[ap]t-{_UUID}"),
    shape("logfire-token", "pylf_v1_", pattern=r"pylf_v[0-9]_[a-z]{2}_[A-Za-z0-9]{40,}"),
    shape("codspeed-or-mergify-token", "mergify_application_key_", pattern=r"mergify_application_key_[A-Za-z0-9_-]{30,}"),
    shape("rootly-key", "rootly_", pattern=r"rootly_[a-f0-9]{64}"),
    shape("configcat-key", "configcat-sdk-", pattern=r"configcat-sdk-1/[A-Za-z0-9_-]{22}/[A-Za-z0-9_-]{22}"),
    shape("grafana-api-key", "eyJrIjoi", pattern=r"eyJrIjoi[A-Za-z0-9+/_-]{60,}={0,2}"),
    shape("newrelic-browser-key", "NRBR- NRIQ-", pattern=r"NR(?:BR|IQ)-[A-Za-z0-9_-]{19,40}"),
    shape("newrelic-license", "FFFFNRAL", pattern=r"[a-f0-9x]{20,36}FFFFNRAL", lead=36),
    shape("newrelic-mobile-token", "-NRMA", pattern=r"[A-Za-z0-9]{36,44}-NRMA", lead=44),
    shape("maxmind-license", "_mmk", pattern=r"[a-zA-Z0-9]{6}_[a-zA-Z0-9]{29}_mmk", lead=36),
)  # fmt: skip
