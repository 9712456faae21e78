"""Rules for what is no secret and still nobody's business: temporary paths, internal addresses (B57)."""

from __future__ import annotations

from kipu.security.redaction.rule import Rule, Tier


def _always(found: bytes) -> bool:
    return bool(found)


def _is_private_address(found: bytes) -> bool:
    parts = found.split(b".")
    return len(parts) != 4 or not all(part.isdigit() for part in parts) or all(int(part) <= 255 for part in parts)


TEMPORARY_PATHS = (
    Rule("temporary-path", ("/tmp/", "/var/folders/", "/dev/shm/"),  # noqa: S108
         r"(?:/private)?(?:/var)?/(?:tmp|folders|dev/shm)/[A-Za-z0-9._~@+=/-]{2,}", lead=12, check=_always, tier=Tier.PLACE, folded=True),
    Rule("temporary-path", ("\\appdata\\local\\temp\\", "\\windows\\temp\\", "\\\\temp\\\\"),
         r"[A-Za-z]:(?:\\{1,2}[A-Za-z0-9._~ -]{1,60}){1,6}\\{1,2}[tT](?:emp|EMP)\\{1,2}[A-Za-z0-9._~\\-]{1,}", lead=120, check=_always,
         tier=Tier.PLACE, folded=True),
)  # fmt: skip
INTERNAL_ADDRESSES = (
    Rule("internal-address", ("10.", "192.168.", "172.", "169.254.", "127."),
         r"(?:10\.[0-9]{1,3}|192\.168|172\.(?:1[6-9]|2[0-9]|3[01])|169\.254|127\.[0-9]{1,3})\.[0-9]{1,3}\.[0-9]{1,3}",
         check=_is_private_address, tier=Tier.PLACE, folded=True),
    Rule("internal-address", (".internal", ".corp", ".lan", ".intranet", ".local", ".svc"),
         r"[A-Za-z0-9][A-Za-z0-9.-]{0,100}\.(?:internal|corp|lan|intranet|local|svc(?:\.cluster\.local)?)", lead=101, check=_always,
         tier=Tier.PLACE, folded=True),
    Rule("internal-address", ("fd", "fe80:"), r"(?:f[dD][0-9a-fA-F]{2}|fe80):[0-9a-fA-F:]{2,36}(?:%[a-z0-9]+)?", check=_always,
         tier=Tier.PLACE, folded=True),
)  # fmt: skip
