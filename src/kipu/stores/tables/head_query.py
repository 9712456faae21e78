"""A `SessionQuery` as SQL: every condition a term, the cursor a comparison of rows, so that pages cost what the first does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kipu.errors import InvalidQueryError
from kipu.ports.store import SessionQuery
from kipu.stores.paging import check_order, decode_cursor
from kipu.stores.same_value import same_value
from kipu.stores.tables import member_table

_FENCE = "\x1f"
_INTEGERS = range(-(1 << 63), 1 << 63)  # those of the engine; JSON has bigger ones
_Terms = list[tuple[str, tuple[Any, ...]]]


def head_statement(query: SessionQuery, *, limit: int) -> tuple[str, tuple[Any, ...]]:
    """Return the SELECT (session_id, data, order value) of at most `limit` rows of a page, and its bindings."""
    check_order(query)
    terms = [*_equalities(query), *_times(query), *_contents(query.metadata)]
    if query.visible_to is None:
        return _select(query, "heads", terms, limit=limit)
    # What an id owns and what it shares are each read off an index in the order asked for, and merged.
    member = query.visible_to
    owned = _select(query, "heads", [("owner = ?", (member,)), *terms], limit=limit)
    shared_terms = [("member = ?", (member,)), ("owner <> ?", (member,)), *terms]
    tables = "members CROSS JOIN heads ON heads.id = members.session"
    shared = _select(query, tables, shared_terms, limit=limit, place=(member_table.ORDERS[query.order], "shared_id"))
    direction = "DESC" if query.descending else "ASC"
    sql = f"SELECT * FROM ({owned[0]}) UNION ALL SELECT * FROM ({shared[0]}) ORDER BY 3 {direction}, 1 {direction} LIMIT ?"
    return sql, (*owned[1], *shared[1], limit)


def _select(
    query: SessionQuery, tables: str, terms: _Terms, *, limit: int, place: tuple[str, str] | None = None
) -> tuple[str, tuple[Any, ...]]:
    """Return one SELECT in the order of `place`, the columns that the order is read off."""
    moment, session_id = place or (query.order, "session_id")
    comparison, direction = ("<", "DESC") if query.descending else (">", "ASC")
    if query.cursor is not None:
        left_off = decode_cursor(query.cursor, str, str)
        terms = [*terms, (f"({moment}, {session_id}) {comparison} (?, ?)", left_off)]
    where = " AND ".join(condition for condition, _ in terms) or "1"
    bindings = tuple(value for _, values in terms for value in values)
    order = f"ORDER BY {moment} {direction}, {session_id} {direction} LIMIT ?"
    return f"SELECT session_id, data, {moment} FROM {tables} WHERE {where} {order}", (*bindings, limit)


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
    if query.open_turn is not None:
        terms.append((f"json_extract(data, '$.open_turn') IS {'NOT ' if query.open_turn else ''}NULL", ()))
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
        elif isinstance(value, float) or (isinstance(value, int) and value in _INTEGERS):
            condition = "json_type(data, ?) IN ('integer', 'real') AND json_extract(data, ?) = ?"
            terms.append((condition, (path, path, value)))
        elif isinstance(value, str):
            terms.append(("json_type(data, ?) = 'text' AND json_extract(data, ?) = ?", (path, path, value)))
        else:
            terms.append(("kipu_same(data -> ?, ?)", (path, orjson.dumps(value).decode())))
    return terms


def same_json(*texts: Any) -> bool:
    """Return whether two JSON texts mean the same; registered in SQL as `kipu_same` for what SQL cannot compare."""
    left, right = texts
    if not isinstance(left, str):
        return False
    try:
        return same_value(orjson.loads(left), orjson.loads(right))
    except ValueError:
        return False
