"""Long values made short, the same way every time: the head, how much is left out, the tail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_HEAD_SHARE = 0.7
_MIN_CHARS = 64


def shorten_text(text: str, *, tokens: int, max_tokens: int) -> str:
    """Return `text`, which costs `tokens`, cut to about `max_tokens`; the same object where nothing was cut."""
    if tokens <= max_tokens:
        return text
    keep = max(_MIN_CHARS, int(len(text) * max_tokens / tokens) - _MIN_CHARS)
    return keep_ends(text, max_chars=keep)


def keep_ends(text: str, *, max_chars: int) -> str:
    """Return the head and the tail of `text`, at most `max_chars` of it, with the number of characters left out between."""
    if len(text) <= max_chars + _MIN_CHARS:
        return text
    head = int(max_chars * _HEAD_SHARE)
    tail = max_chars - head
    return f"{text[:head]}\n[… {len(text) - max_chars} characters left out …]\n{text[len(text) - tail :]}"


def fair_share(costs: Sequence[int], *, total: int) -> int:
    """Return the highest bound per value with which all values together cost at most `total`."""
    if sum(costs) <= total:
        return max(costs, default=0)
    left = total
    for index, cost in enumerate(sorted(costs)):
        share = left // (len(costs) - index)
        if cost > share:
            return max(share, 1)
        left -= cost
    return max(left, 1)


def shorten_strings(value: Any, *, max_chars: int) -> Any:
    """Return JSON data with every string in it cut to `max_chars`, names of fields kept."""
    if isinstance(value, str):
        return keep_ends(value, max_chars=max_chars)
    if isinstance(value, dict):
        return {name: shorten_strings(item, max_chars=max_chars) for name, item in value.items()}
    if isinstance(value, list):
        return [shorten_strings(item, max_chars=max_chars) for item in value]
    return value
