"""Tokens of makers that are in no list: a short name, a dash or underscore, and much chance behind it."""

from __future__ import annotations

from kipu.security.redaction.plausible import classes_in, entropy_bits, is_stand_in
from kipu.security.redaction.rule import Rule


def _is_token(found: bytes) -> bool:
    """Return True for small letters, capitals and digits, mixed; hashes are named as such and left alone."""
    at = max(found.rfind(b"_"), found.rfind(b"-"))
    name, body = found[:at].lower(), found[at + 1 :]
    digits = sum(48 <= byte <= 57 for byte in body)
    mixed = classes_in(body) == 3 and entropy_bits(body) >= 4.2 and 3 <= digits <= len(body) // 2
    return mixed and not name.startswith((b"sha", b"md5", b"h1")) and not is_stand_in(found)


# It has no literal to be found by: it is searched for in the whole text.
RULE = Rule(
    "service-token", (), r"[A-Za-z][A-Za-z0-9]{1,9}[_-](?:[a-z0-9]{2,8}[_-])?[A-Za-z0-9]{32,64}", check=_is_token
)
