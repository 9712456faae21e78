"""Canonical JSON, over which digests are taken, and the digest of a list that grows at its end and is cut at its start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from types import NoneType
from typing import Any

import orjson

_WHOLE = frozenset({str, int, bool, NoneType})


def canonical(value: Any) -> bytes:
    """Return JSON with sorted names, no spaces and plain UTF-8: the same bytes for the same data, on every machine."""
    if not _has_float(value):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass  # integers beyond 64 bits, which only a log that was never normalised has
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def list_digest(values: Sequence[Any]) -> str:
    """Return the digest, in hex, of a list: the SHA-256 of the SHA-256s of its values, each in canonical form."""
    return hashlib.sha256(b"".join(map(_digest, values))).hexdigest()


class GrowingDigest:
    """Take the `list_digest` of a list again and again, hashing what stays of it only once."""

    def __init__(self) -> None:
        self._known: list[bytes] = []

    def of(self, fixed: Sequence[Any], end: Sequence[Any]) -> str:
        """Return the digest of `fixed`, whose values stay as they are from now on, and what may change behind them."""
        self._known += map(_digest, fixed[len(self._known) :])
        return hashlib.sha256(b"".join([*self._known, *map(_digest, end)])).hexdigest()

    def forget(self, start: int, stop: int) -> None:
        """Know that these values are not in the list any more."""
        del self._known[start:stop]


def _digest(value: Any) -> bytes:
    return hashlib.sha256(canonical(value)).digest()


def _has_float(value: Any) -> bool:
    """Say whether a number in it is written in more than one way by the encoders that there are."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return kind is float
    items = value.values() if kind is dict else value
    if _WHOLE.issuperset(map(type, items)):
        return False
    for item in items:  # noqa: SIM110 - asked of every message, for which a generator takes twice as long
        if type(item) not in _WHOLE and _has_float(item):
            return True
    return False
