"""Keys of ledgers and wallets: what is written in base 58 carries its checksum, what is written in words a length."""

from __future__ import annotations

import hashlib

from kipu.security.redaction.plausible import entropy_bits
from kipu.security.redaction.rule import shape

_BASE58 = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_WORDS = (12, 15, 18, 21, 24)


def has_base58_sum(text: bytes) -> bool:
    """Return True where the last four bytes of a base 58 text are the doubled SHA-256 of the others."""
    number = 0
    for char in text:
        digit = _BASE58.find(char)
        if digit < 0:
            return False
        number = number * 58 + digit
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return len(data) > 8 and hashlib.sha256(hashlib.sha256(data[:-4]).digest()).digest()[:4] == data[-4:]


def is_mnemonic(text: bytes) -> bool:
    """Return True for as many different small words as a wallet's phrase has."""
    words = text.split()
    return len(words) in _WORDS and len(set(words)) > len(words) * 2 // 3 and entropy_bits(text) > 3.5


RULES = (shape("extended-private-key", "xprv yprv zprv tprv", pattern=r"[xyzt]prv[1-9A-HJ-NP-Za-km-z]{100,112}"),)
