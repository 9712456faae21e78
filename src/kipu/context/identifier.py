"""Ids and names that every provider takes, made from those that were given."""

from __future__ import annotations

import hashlib
import re

SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class UniqueIds:
    """Hand out ids that differ, keeping each given id where it is free; the same order of requests gives the same ids."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """Return `wanted`, or with a number behind it when it is taken."""
        wanted = wanted if wanted.strip() else "call"
        candidate = wanted
        number = self._next.get(wanted, 2)
        while candidate in self._used:
            candidate = f"{wanted}-{number}"
            number += 1
            self._next[wanted] = number
        self._used.add(candidate)
        return candidate


def safe_id(given: str) -> str:
    """Return an id of 1 to 40 characters from A-Z a-z 0-9 _ -; different ids stay different."""
    if SAFE_ID.fullmatch(given):
        return given
    return f"call_{hashlib.sha256(given.encode('utf-8', 'replace')).hexdigest()[:32]}"


def short_id(given: str) -> str:
    """Return an id of exactly nine letters and digits, the narrowest form that any provider asks for."""
    number = int.from_bytes(hashlib.sha256(given.encode("utf-8", "replace")).digest()[:8], "big")
    letters = []
    for _ in range(9):
        number, digit = divmod(number, 62)
        letters.append(_DIGITS[digit])
    return "".join(letters)


def safe_name(given: str) -> str:
    """Return a tool name of 1 to 64 characters from A-Z a-z 0-9 _ - that starts with a letter or underscore."""
    if SAFE_NAME.fullmatch(given):
        return given
    name = _UNSAFE.sub("_", given)[:64] or "tool"
    return name if SAFE_NAME.fullmatch(name) else f"_{name[:63]}"
