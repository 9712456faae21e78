"""Cursors and page sizes: where a page ended, as text that only the store reads."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from kipu.errors import InvalidQueryError
from kipu.ports.store import MAX_PAGE, SessionQuery

ORDERS = ("last_activity_at", "created_at")


def encode_cursor(*place: Any) -> str:
    """Return the cursor of a place."""
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """Return the place of a cursor made of values of `kinds`. Raises: InvalidQueryError."""
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        place = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except ValueError as error:
        raise InvalidQueryError(reason="the cursor is not one of this store") from error
    if not isinstance(place, list) or [type(value) for value in place] != list(kinds):
        raise InvalidQueryError(reason="the cursor belongs to another kind of query")
    return tuple(place)


def page_size(limit: int) -> int:
    """Return how many items a page holds. Raises: InvalidQueryError below one."""
    if limit < 1:
        raise InvalidQueryError(reason=f"a page of {limit} items")
    return min(limit, MAX_PAGE)


def check_order(query: SessionQuery) -> None:
    """Raise InvalidQueryError for an order that heads do not have."""
    if query.order not in ORDERS:
        raise InvalidQueryError(reason=f"order {query.order!r} is not one of {', '.join(ORDERS)}")
