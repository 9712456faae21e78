"""When two values of metadata are the same, as every store has it."""

from __future__ import annotations

from typing import Any


def same_value(left: Any, right: Any) -> bool:
    """Return whether two JSON values are the same: numbers by what they are worth, truth values being none, inside of others too."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)
