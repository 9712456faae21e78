"""Heads as lists show them: one that cannot be read is listed by its id, never hidden (situation 73)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kipu.ports.head import Head, head_of_row

_DAMAGED = (AttributeError, LookupError, TypeError, ValueError)


def listed_heads(rows: Sequence[Sequence[Any]]) -> list[Head]:
    """Return the heads of rows that begin with a session's id and the JSON text of its head.

    A page is read as one text: a quarter less time than row by row, which only finds which of them is damaged.
    """
    try:
        found = orjson.loads(f"[{','.join([row[1] for row in rows])}]")
        if len(found) == len(rows):
            return [head_of_row(row) for row in found]
    except _DAMAGED:
        pass
    return [listed_head(row[0], row[1]) for row in rows]


def listed_head(session_id: str, data: str | bytes) -> Head:
    """Return the head of one row."""
    try:
        return head_of_row(orjson.loads(data))
    except _DAMAGED:
        return Head(session_id, title="(unreadable: run kipu verify)", status="unreadable")
