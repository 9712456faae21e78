"""A `SessionQuery` as SQL: every condition a term, the cursor a comparison of rows, so that pages cost what the first does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson

from kipu.errors import InvalidQueryError
from kipu.ports.head import Head
from kipu.ports.owner import Liveness
from kipu.ports.store import Page, SessionQuery
from kipu.stores.head_columns import TAG_FENCE
from kipu.stores.listed_heads import listed_head, listed_heads
from kipu.stores.paging import check_order, decode_cursor, encode_cursor, page_size
from kipu.stores.postgres.database import Database
from kipu.stores.postgres.heads import filter_text, sql, storable
from kipu.stores.postgres.members import ORDERS

Terms: TypeAlias = list[tuple[str, tuple[Any, ...]]]
FREE = (
    "SELECT session_id, data FROM {schema}.heads WHERE due_at IS NOT NULL AND due_at <= %s"
    " AND (lease_owner IS NULL OR lease_until IS NULL OR lease_until <= %s)"
    " ORDER BY due_at, last_event_at, session_id LIMIT %s"
)
HELD = (
    "SELECT session_id, data, lease_owner FROM {schema}.heads WHERE due_at IS NOT NULL AND due_at <= %s"
    " AND lease_owner IS NOT NULL AND lease_until > %s ORDER BY due_at, last_event_at, session_id LIMIT %s"
)
_MOST_HELD = 500


async def page(database: Database, query: SessionQuery) -> Page[Head]:
    """Return a page of heads."""
    limit = page_size(query.limit)
    text, values = head_statement(query, limit=limit + 1)
    rows = await database.rows(sql(text, database), values)
    more = len(rows) > limit
    del rows[limit:]
    cursor = encode_cursor(rows[-1][2], rows[-1][0]) if more else None
    return Page(tuple(listed_heads(rows)), cursor)


async def runnable(database: Database, liveness: Liveness, *, now: str, limit: int) -> list[Head]:
    """Return heads with work that is due and without a live lease, those due longest first."""
    limit = page_size(limit)
    found = listed_heads(await database.rows(sql(FREE, database), (now, now, limit)))
    dead: dict[str, bool] = {}
    for session_id, data, owner in await database.rows(sql(HELD, database), (now, now, _MOST_HELD)):
        if owner not in dead:
            dead[owner] = liveness.is_dead(owner)
        if dead[owner]:
            found.append(listed_head(session_id, data))
    found.sort(key=lambda head: (head.due_at or "", head.last_event_at, head.session_id))
    return found[:limit]


def head_statement(query: SessionQuery, *, limit: int) -> tuple[str, tuple[Any, ...]]:
    """Return the SELECT (session_id, data, order value) of at most `limit` rows of a page, and its values."""
    check_order(query)
    terms = [("h.data IS NOT NULL", ()), *_equalities(query), *_times(query), *_contents(query.metadata)]
    if query.visible_to is None:
        return _select(
            query, "{schema}.heads AS h", terms, limit=limit, moment=f"h.{query.order}", place="h.session_id"
        )
    # What an id owns and what it shares are each read off an index in the order asked for, and merged.
    member = query.visible_to
    owned_terms = [("h.owner = %s", (member,)), *terms]
    owned = _select(
        query, "{schema}.heads AS h", owned_terms, limit=limit, moment=f"h.{query.order}", place="h.session_id"
    )
    shared_terms = [("m.member = %s", (member,)), ("h.owner <> %s", (member,)), *terms]
    tables = "{schema}.members AS m JOIN {schema}.heads AS h ON h.session_id = m.session_id"
    shared = _select(query, tables, shared_terms, limit=limit, moment=f"m.{ORDERS[query.order]}", place="m.session_id")
    direction = "DESC" if query.descending else "ASC"
    text = f"SELECT * FROM (({owned[0]}) UNION ALL ({shared[0]})) AS u ORDER BY 3 {direction}, 1 {direction} LIMIT %s"
    return text, (*owned[1], *shared[1], limit)


def _select(
    query: SessionQuery, tables: str, terms: Terms, *, limit: int, moment: str, place: str
) -> tuple[str, tuple[Any, ...]]:
    comparison, direction = ("<", "DESC") if query.descending else (">", "ASC")
    if query.cursor is not None:
        left_off = decode_cursor(query.cursor, str, str)
        terms = [*terms, (f"({moment}, {place}) {comparison} (%s, %s)", left_off)]
    where = " AND ".join(condition for condition, _ in terms)
    values = tuple(value for _, values in terms for value in values)
    order = f"ORDER BY {moment} {direction}, {place} {direction} LIMIT %s"
    return f"SELECT h.session_id, h.data, {moment} AS moment FROM {tables} WHERE {where} {order}", (*values, limit)


def _equalities(query: SessionQuery) -> Terms:
    columns = (
        ("tenant", query.tenant),
        ("owner", query.owner),
        ("key", query.key),
        ("forked_from", query.forked_from),
    )
    terms: Terms = [(f"h.{column} = %s", (storable(value),)) for column, value in columns if value is not None]
    if query.key_prefix is not None:
        terms.append(("starts_with(h.key, %s)", (storable(query.key_prefix),)))
    if query.statuses is not None:
        terms.append(("h.status = ANY(%s)", (sorted(query.statuses),)))
    for tag in sorted(query.tags):
        terms.append(("strpos(h.tags, %s) > 0", (TAG_FENCE + orjson.dumps(tag).decode() + TAG_FENCE,)))
    if query.pinned is not None:
        terms.append(("h.pinned = %s", (int(query.pinned),)))
    if query.open_turn is not None:
        terms.append(("h.open_turn = %s", (query.open_turn,)))
    if query.unindexed:
        terms.append(("h.lagging = 1", ()))
    return terms


def _times(query: SessionQuery) -> Terms:
    bounds = (
        ("created_at", ">", query.created_after),
        ("created_at", "<", query.created_before),
        ("last_activity_at", ">", query.active_after),
        ("last_activity_at", "<", query.active_before),
    )
    return [(f"h.{column} {sign} %s", (value,)) for column, sign, value in bounds if value is not None]


def _contents(metadata: Mapping[str, Any]) -> Terms:
    terms: Terms = []
    for name, value in sorted(metadata.items()):
        if '"' in name or "\\" in name:
            raise InvalidQueryError(reason=f"metadata name {name!r} holds a quote or a backslash")
        if value is None:
            terms.append(("coalesce(h.metadata -> %s, 'null'::jsonb) = 'null'::jsonb", (name,)))
        else:
            terms.append(("h.metadata -> %s = %s::text::jsonb", (name, filter_text(value))))
    return terms
