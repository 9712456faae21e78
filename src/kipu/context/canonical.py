"""Canonical JSON, over which digests are taken, and the digest of a list that grows at its end."""

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


class GrowingDigest:
    """Take the SHA-256 of the canonical form of a list again and again, hashing what stays of it only once."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._count = 0

    def of(self, values: Sequence[Any], *, fixed: int) -> str:
        """Return the digest, in hex, of a list whose first `fixed` values are the same from now on."""
        for index in range(self._count, fixed):
            self._hash.update(_element(values, index))
        self._count = max(self._count, fixed)
        whole = self._hash.copy()
        for index in range(self._count, len(values)):
            whole.update(_element(values, index))
        whole.update(b"]")
        return whole.hexdigest()


def _element(values: Sequence[Any], index: int) -> bytes:
    return b"," + canonical(values[index]) if index else canonical(values[index])


def _has_float(value: Any) -> bool:
    """Say whether a number in it is written in more than one way by the encoders that there are."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return kind is float
    items = value.values() if kind is dict else value
    return not _WHOLE.issuperset(map(type, items)) and any(
        type(item) not in _WHOLE and _has_float(item) for item in items
    )
