"""Checksums that formats of tokens carry. One that fits makes a token certain; one that does not proves nothing."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

from kipu.security.redaction.plausible import is_plausible

_BASE62 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BECH32 = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_STEPS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


def has_base62_crc(token: bytes) -> bool:
    """Return True where the last six characters are the CRC-32 of those behind the prefix, in base 62 (GitHub, npm)."""
    body = token.rpartition(b"_")[2]
    return len(body) > 6 and body[-6:] == _base62(zlib.crc32(body[:-6]))


def _base62(number: int) -> bytes:
    digits = bytearray()
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return bytes(reversed(digits))


def has_hex_crc(token: bytes) -> bool:
    """Return True where eight hex digits at the end are the CRC-32 of what is before their separator (Grafana, Atlassian)."""
    body, said = token[:-9], token[-8:].lower()
    last = body.rpartition(b"_")[2]
    return said in (b"%08x" % zlib.crc32(body), b"%08x" % zlib.crc32(last))


def has_bech32_sum(token: bytes) -> bool:
    """Return True where the six characters at the end are a bech32 checksum (age)."""
    prefix, _, data = token.lower().rpartition(b"1")
    if not prefix or any(char not in _BECH32 for char in data):
        return False
    values = (
        [char >> 5 for char in prefix] + [0] + [char & 31 for char in prefix] + [_BECH32.index(char) for char in data]
    )
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, step in enumerate(_BECH32_STEPS):
            check ^= step if top >> bit & 1 else 0
    return check == 1


def is_github_token(token: bytes) -> bool:
    """Return True for a token with its checksum, and for one that looks like chance."""
    return has_base62_crc(token) or is_plausible(token)


def is_checked_hex(token: bytes) -> bool:
    """Return True for a token with its checksum, and for one that looks like chance."""
    return has_hex_crc(token) or is_plausible(token)


def is_age_key(token: bytes) -> bool:
    """Return True for a key with its checksum, and for one that looks like chance."""
    return has_bech32_sum(token) or is_plausible(token)


def is_jwt(token: bytes) -> bool:
    """Return True where the first part is a JSON object that names an algorithm, or the parts look like chance."""
    header = decoded_json(token.split(b".")[0])
    return isinstance(header, dict) and ("alg" in header or "enc" in header or "typ" in header)


def is_coded_jwt(token: bytes) -> bool:
    """Return True for base64 of a token of three parts."""
    try:
        return is_jwt(
            base64.b64decode(
                token + b"=" * (-len(token) % 4), altchars=b"-_" if b"-" in token or b"_" in token else None
            )
        )
    except (binascii.Error, ValueError):
        return False


def is_coded_key(text: bytes) -> bool:
    """Return True for base64 of a private key's block."""
    try:
        return b"PRIVATE KEY" in base64.b64decode(text[:160][: len(text[:160]) // 4 * 4])
    except binascii.Error:
        return False


def decoded_json(text: bytes) -> Any:
    """Return the JSON value that is written in base64, None where there is none."""
    try:
        return json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        return None


def is_basic_pair(text: bytes) -> bool:
    """Return True for base64 of `name:password`, as HTTP's basic authentication and Docker's file have it."""
    try:
        plain = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    name, colon, secret = plain.partition(b":")
    return bool(name and colon and len(secret) >= 3) and plain.isascii() and plain.decode().isprintable()
