"""Filter criteria as a plain mapping, turned into a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kipu.errors import InvalidQueryError
from kipu.events.event import utc_text
from kipu.ports.store import SessionQuery
from kipu.session.lifecycle import STATUSES

_TIMES = ("created_before", "created_after", "active_before", "active_after")
_PLAIN = ("owner", "key", "key_prefix", "forked_from", "pinned", "order", "descending", "limit")


def query_of(criteria: Mapping[str, Any]) -> SessionQuery:
    """Return the query: names of `SessionQuery`, `status` (one or several), `tags`; every other name is a metadata filter.

    Raises:
        InvalidQueryError: a time is neither an aware datetime nor ISO 8601 text, a status is unknown, metadata is no mapping.
    """
    values: dict[str, Any] = {"limit": 500}
    asked = criteria.get("metadata", {})
    if not isinstance(asked, Mapping):
        raise InvalidQueryError(reason=f"metadata is a mapping of names to values, not {asked!r}")
    metadata = dict(asked)
    for name, value in criteria.items():
        if name in _TIMES:
            values[name] = time_text(name, value)
        elif name in ("status", "statuses"):
            values["statuses"] = _statuses([value] if isinstance(value, str) else value)
        elif name == "tags":
            values["tags"] = frozenset([value] if isinstance(value, str) else _texts(value))
        elif name in _PLAIN:
            values[name] = value
        elif name != "metadata":
            metadata[name] = value
    return SessionQuery(**values, metadata=metadata)


def time_text(name: str, value: object) -> str:
    """Return a time as the text that heads hold."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidQueryError(reason=f"{name} is not an ISO 8601 time: {value!r}") from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidQueryError(reason=f"{name} needs a time with a zone, such as 2026-01-31T12:00:00Z")
    return utc_text(value)


def _statuses(values: Iterable[str]) -> frozenset[str]:
    wrong = sorted(set(values) - set(STATUSES))
    if wrong:
        raise InvalidQueryError(reason=f"status {wrong[0]!r} is not one of {', '.join(STATUSES)}")
    return frozenset(values)


def _texts(values: Iterable[str]) -> Iterable[str]:
    return (str(value) for value in values)
