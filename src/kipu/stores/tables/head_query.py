"""A `SessionQuery` as SQL: every condition a term, the cursor a comparison of rows, so that pages cost what the first does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kipu.errors import InvalidQueryError
from kipu.ports.store import SessionQuery
from kipu.stores.paging import check_order, decode_cursor

_FENCE = "\x1f"
_Terms = list[tuple[str, tuple[Any, ...]]]


def head_statement(query: SessionQuery) -> tuple[str, tuple[Any, ...]]:
    """Return the SELECT (session_id, data, order value) of a page and its bindings, those of the limit left out."""
    check_order(query)
    terms = [*_equalities(query), *_times(query), *_contents(query.metadata)]
    comparison, direction = ("<", "DESC") if query.descending else (">", "ASC")
    if query.cursor is not None:
        place = decode_cursor(query.cursor, str, str)
        terms.append((f"({query.order}, session_id) {comparison} (?, ?)", place))
    where = " AND ".join(condition for condition, _ in terms) or "1"
    bindings = tuple(value for _, values in terms for value in values)
    order = f"ORDER BY {query.order} {direction}, session_id {direction} LIMIT ?"
    return f"SELECT session_id, data, {query.order} FROM heads WHERE {where} {order}", bindings


def _equalities(query: SessionQuery) -> _Terms:
    terms: _Terms = []
    # A plus keeps a column out of the choice of index: these rarely select enough to give up the order for them.
    columns = (
        ("+tenant", query.tenant),
        ("owner", query.owner),
        ("key", query.key),
        ("forked_from", query.forked_from),
    )
    terms += [(f"{column} = ?", (value,)) for column, value in columns if value is not None]
    if query.key_prefix is not None:
        terms.append(("substr(key, 1, length(?1)) = ?1".replace("?1", "?"), (query.key_prefix, query.key_prefix)))
    if query.statuses is not None:
        terms.append((f"status IN ({', '.join('?' * len(query.statuses))})", tuple(sorted(query.statuses))))
    for tag in sorted(query.tags):
        terms.append(("instr(tags, ?) > 0", (_FENCE + orjson.dumps(tag).decode() + _FENCE,)))
    if query.pinned is not None:
        terms.append(("pinned = ?", (int(query.pinned),)))
    if query.unindexed:
        terms.append(("lagging = 1", ()))
    return terms


def _times(query: SessionQuery) -> _Terms:
    bounds = (
        ("created_at", ">", query.created_after),
        ("created_at", "<", query.created_before),
        ("last_activity_at", ">", query.active_after),
        ("last_activity_at", "<", query.active_before),
    )
    # Only the column that orders may use its index: the other would give up the order, and with it the cheap page.
    return [
        (f"{'' if column == query.order else '+'}{column} {sign} ?", (value,))
        for column, sign, value in bounds
        if value is not None
    ]


def _contents(metadata: Mapping[str, Any]) -> _Terms:
    terms: _Terms = []
    for name, value in sorted(metadata.items()):
        if '"' in name or "\\" in name:
            raise InvalidQueryError(reason=f"metadata name {name!r} holds a quote or a backslash")
        path = f'$.metadata."{name}"'
        if value is None:
            terms.append(("json_extract(data, ?) IS NULL", (path,)))
        elif isinstance(value, bool):
            terms.append(("json_type(data, ?) = ?", (path, "true" if value else "false")))
        elif isinstance(value, (int, float)):
            condition = "json_type(data, ?) IN ('integer', 'real') AND json_extract(data, ?) = ?"
            terms.append((condition, (path, path, value)))
        elif isinstance(value, str):
            terms.append(("json_extract(data, ?) = ?", (path, value)))
        else:
            terms.append(("kipu_same(json_extract(data, ?), ?)", (path, orjson.dumps(value).decode())))
    return terms


def same_json(*texts: Any) -> bool:
    """Return whether two JSON texts mean the same; registered in SQL as `kipu_same` for objects and arrays."""
    left, right = texts
    if not isinstance(left, str):
        return False
    try:
        return bool(orjson.loads(left) == orjson.loads(right))
    except ValueError:
        return False
