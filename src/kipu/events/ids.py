"""Identifiers: minted from arguments (time and random bytes), checked by one rule."""

from __future__ import annotations

import re

from kipu.errors import InvalidSessionIdError

_MAX_MS = (1 << 48) - 1
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # the two bits that say which kind of UUID it is
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_SESSION_ID = re.compile(r"[a-z0-9_-]{1,64}")
# Windows refuses these as file names whatever the extension; ids name folders on every platform.
_DEVICE_NAMES = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))]
)


def uuid7_int(unix_ms: int, random: bytes) -> int:
    """Return a UUIDv7 (RFC 9562) as an integer from milliseconds since 1970 and 10 random bytes."""
    tail = int.from_bytes(random[:10], "big")
    rand_a = tail >> 68
    rand_b = tail & ((1 << 62) - 1)
    return ((unix_ms & ((1 << 48) - 1)) << 80) | (0x7 << 76) | ((rand_a & 0xFFF) << 64) | (0b10 << 62) | rand_b


def event_id(unix_ms: int, random: bytes) -> str:
    """Return a new event id: a UUIDv7 in its usual text form."""
    # As text at once: every event has one, and arithmetic on the number takes twice as long.
    moment, chance = f"{unix_ms & _MAX_MS:012x}", random[:10].hex()
    return f"{moment[:8]}-{moment[8:]}-7{chance[:3]}-{_VARIANT[chance[4]]}{chance[5:8]}-{chance[8:]}"


def prefixed_id(prefix: str, unix_ms: int, *, random: bytes) -> str:
    """Return `prefix` + '_' + 26 lower-case Crockford characters of a UUIDv7; ids sort by creation time."""
    value = uuid7_int(unix_ms, random)
    return prefix + "_" + "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def session_id(unix_ms: int, random: bytes) -> str:
    """Return a new session id (`sess_…`)."""
    return prefixed_id("sess", unix_ms, random=random)


def check_session_id(candidate: object) -> str:
    """Return `candidate` when it is a session id.

    Raises:
        InvalidSessionIdError: it is empty, too long, has other characters, or is a device name (A21, situation 80).
    """
    if not isinstance(candidate, str) or not _SESSION_ID.fullmatch(candidate):
        raise InvalidSessionIdError(session_id=candidate, reason="it has characters or a length that ids do not have")
    if candidate in _DEVICE_NAMES:
        raise InvalidSessionIdError(session_id=candidate, reason="it is a reserved device name")
    return candidate
