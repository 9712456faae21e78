"""Heads as rows: one JSON document, and beside it what lists are filtered and ordered by."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import compress
from operator import ne
from typing import Any, NamedTuple, cast

import apsw
import orjson

from kipu.errors import StoreCorruptError
from kipu.ports.head import Head
from kipu.ports.owner import Liveness
from kipu.ports.store import Page, SessionQuery
from kipu.stores.head_columns import COLUMNS, columns_of
from kipu.stores.listed_heads import listed_head, listed_heads
from kipu.stores.paging import encode_cursor, page_size
from kipu.stores.tables import member_table
from kipu.stores.tables.head_query import head_statement

_INSERT = f"INSERT INTO heads(session_id, data, crc, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * 16)})"
_LOAD = "SELECT id, data, crc FROM heads WHERE session_id = ?"
_DUE = """
SELECT session_id, data, crc, lease_owner, lease_until FROM heads WHERE due_at IS NOT NULL AND due_at <= ?
ORDER BY due_at, json_extract(data, '$.last_event_at'), session_id
"""
# The name under which a store may keep a text of its own in a row: no field of a head, and whoever lists skips it.
OWN_NOTE = "log"


class HeadRow(NamedTuple):
    """A head, its session's number in the database, and its columns where they were computed already."""

    number: int
    data: dict[str, Any]
    columns: tuple[Any, ...] | None = None


def load(connection: apsw.Connection, session_id: str, *, store: str) -> HeadRow | None:
    """Return the row, or None where there is no such session. Raises: StoreCorruptError."""
    row = connection.execute(_LOAD, (session_id,)).fetchone()
    return None if row is None else HeadRow(row[0], _checked(session_id, row[1], row[2], store=store))


def number_of(connection: apsw.Connection, session_id: str) -> int | None:
    """Return the session's number, or None where there is no such session."""
    row = connection.execute("SELECT id FROM heads WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else int(row[0])


def insert(connection: apsw.Connection, data: dict[str, Any]) -> HeadRow:
    """Add the head of a new session."""
    text, columns = orjson.dumps(data), columns_of(data)
    connection.execute(_INSERT, (data["session_id"], text.decode(), zlib.crc32(text), *columns))
    number = connection.last_insert_rowid()
    member_table.follow(connection, number, before={}, after=data)
    return HeadRow(number, data, columns)


def update(connection: apsw.Connection, row: HeadRow, *, after: dict[str, Any]) -> HeadRow:
    """Replace the head; columns that stay are not named, so that their indexes stay untouched."""
    text, columns = orjson.dumps(after), columns_of(after)
    before = row.columns or columns_of(row.data)
    changed = list(map(ne, before, columns))
    names = "".join([f", {name}=?" for name in compress(COLUMNS, changed)])
    values = (text.decode(), zlib.crc32(text), *compress(columns, changed), row.number)
    connection.execute(f"UPDATE heads SET data=?, crc=?{names} WHERE id = ?", values)
    member_table.follow(connection, row.number, before=row.data, after=after)
    return HeadRow(row.number, after, columns)


def delete(connection: apsw.Connection, number: int) -> None:
    """Remove the head."""
    member_table.remove(connection, number)
    connection.execute("DELETE FROM heads WHERE id = ?", (number,))


def page(connection: apsw.Connection, query: SessionQuery) -> Page[Head]:
    """Return a page of heads. What it costs does not depend on how deep it is."""
    limit = page_size(query.limit)
    sql, bindings = head_statement(member_table.readable(connection, query), limit=limit + 1)
    rows = cast("list[tuple[str, str, str]]", connection.execute(sql, bindings).fetchall())
    more = len(rows) > limit
    del rows[limit:]
    cursor = encode_cursor(rows[-1][2], rows[-1][0]) if more else None
    return Page(tuple(listed_heads(rows)), cursor)


def runnable(connection: apsw.Connection, liveness: Liveness, *, now: str, limit: int) -> list[Head]:
    """Return heads with work that is due and without a live lease, those due longest first."""
    limit = page_size(limit)
    dead: dict[str, bool] = {}
    found: list[Head] = []
    for session_id, data, _, owner, until in connection.execute(_DUE, (now,)):
        if owner and until and until > now:
            if owner not in dead:
                dead[owner] = liveness.is_dead(owner)
            if not dead[owner]:
                continue
        found.append(listed_head(session_id, data))
        if len(found) == limit:
            break
    return found


def session_ids(connection: apsw.Connection) -> Iterator[str]:
    """Yield the id of every session."""
    for row in connection.execute("SELECT session_id FROM heads ORDER BY id").fetchall():
        yield str(row[0])


def _checked(session_id: str, data: str, crc: int, *, store: str) -> dict[str, Any]:
    if zlib.crc32(data.encode()) != crc:
        raise StoreCorruptError(store=store, reason=f"the head of session {session_id} does not match its checksum")
    row: dict[str, Any] = orjson.loads(data)
    return row
