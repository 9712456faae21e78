"""Heads as rows with a version: read, remembered for a while, and replaced only as they were read."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from kipu.errors import SessionNotFoundError
from kipu.stores.head_columns import COLUMNS, columns_of
from kipu.stores.postgres.database import Connection, Database, fetch
from kipu.stores.store_mark import mark_from_text, refusal

_MOST_KEPT = 1_024
_MOST_TEXTS = 512
_ZERO = "\ufdd0"
_OWN = ("data", *COLUMNS, "last_event_at", "open_turn", "hidden_seq", "last_seq", "metadata")
_CASTS = {
    "metadata": "%s::text::jsonb",
    "open_turn": "%s::boolean",
    "hidden_seq": "%s::bigint",
    "last_seq": "%s::bigint",
}
_CASTS |= {"pinned": "%s::integer", "lagging": "%s::integer"}
_VALUES = tuple(_CASTS.get(name, "%s::text") for name in _OWN)
MARK = "(SELECT value FROM {schema}.meta WHERE name = 'mark')"
LOAD = f"SELECT version, data, {MARK} FROM {{schema}}.heads WHERE session_id = %s"
LOAD_MARK = "SELECT value FROM {schema}.meta WHERE name = 'mark'"
# What a version is raised by depends on what is written: where a server is lost with its last commits and another one goes on
# without them, a head that somebody remembers from before never has the version of one that was written instead.
# A transaction that waited began before the one it waited for: its time is not to be the later one's (following.py).
UPDATE = (
    "UPDATE {schema}.heads SET version = version + %s::bigint, changed_at = greatest(changed_at, now()), "
    + ", ".join(f"{name} = {value}" for name, value in zip(_OWN, _VALUES, strict=True))
    + " WHERE session_id = %s AND version = %s"
)
INSERT = (
    f"INSERT INTO {{schema}}.heads(session_id, version, changed_at, {', '.join(_OWN)})"
    f" VALUES (%s, %s::bigint, now(), {', '.join(_VALUES)}) ON CONFLICT DO NOTHING"
)


class HeadRow(NamedTuple):
    """A head with the version under which it was read; without data, an id that is free (0) or was erased.

    `mark` is the store's, as of the same moment. Setting one raises every version (marking.py), so that who decided before it was
    there finds that his row is not the one that stands.
    """

    version: int
    data: dict[str, Any] | None
    mark: str | None = None

    def after(self, values: tuple[Any, ...], data: dict[str, Any]) -> HeadRow:
        """Return the row once these `row_values` of `data` are written."""
        return HeadRow(self.version + values[0], data)

    @property
    def is_erased(self) -> bool:
        """Return True for an id that was used and is not to be used again."""
        return self.version > 0 and self.data is None


def read_row(row: tuple[Any, ...]) -> HeadRow:
    """Return what `LOAD` gave."""
    version, data, mark = row
    return HeadRow(version, None if data is None else orjson.loads(data), mark)


class Heads:
    """Give heads, from memory where they may still be right. Whoever decides on one must say under which version."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._load = sql(LOAD, database)
        self._rows: OrderedDict[str, HeadRow] = OrderedDict()
        self.own_move: str | None = None  # the move that this store object may write for

    async def take(self, session_id: str) -> tuple[HeadRow, bool]:
        """Return the head, and whether it was read just now."""
        known = self._rows.get(session_id)
        if known is not None:
            self._rows.move_to_end(session_id)
            return known, False
        return await self.load(session_id), True

    async def load(self, session_id: str, *, connection: Connection | None = None) -> HeadRow:
        """Read the head."""
        values = (session_id,)
        if connection is not None:
            rows = await fetch(connection, self._load, values=values)
        else:
            rows = await self._database.rows(self._load, values)
        if not rows:
            return HeadRow(0, None, await self.mark(connection=connection))
        return read_row(rows[0])

    async def mark(self, *, connection: Connection | None = None) -> str | None:
        """Read the store's mark."""
        text = sql(LOAD_MARK, self._database)
        rows = await (self._database.rows(text) if connection is None else fetch(connection, text, values=()))
        return rows[0][0] if rows else None

    def check(self, mark: str | None, *, claims: bool = False) -> None:
        """Raise where the mark forbids a change. Raises: StoreMovedError, StoreBeingFilledError."""
        if mark is None:
            return
        refused = refusal(mark_from_text(mark), own=self.own_move, store=self._database.url, claims=claims)
        if refused is not None:
            raise refused

    async def found(self, session_id: str) -> HeadRow:
        """Read the head of a session there is. Raises: SessionNotFoundError."""
        row = await self.load(session_id)
        if row.data is None:
            raise SessionNotFoundError(session_id=session_id)
        return row

    def keep(self, session_id: str, row: HeadRow) -> None:
        """Remember a head as it was just written."""
        self._rows[session_id] = row
        self._rows.move_to_end(session_id)
        if len(self._rows) > _MOST_KEPT:
            self._rows.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Read it anew next time."""
        self._rows.pop(session_id, None)


def sql(text: str, database: Database) -> str:
    """Return a statement with the schema's name in it."""
    return _in_schema(text, database.address.schema)


@lru_cache(_MOST_TEXTS)
def _in_schema(text: str, schema: str) -> str:
    """Return the same text object for the same statement, which is found in other caches the sooner."""
    return text.replace("{schema}", f'"{schema}"')


def row_values(data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return by how much the version is raised, and the values of a head's own columns, in the order of `UPDATE` and `INSERT`."""
    text = orjson.dumps(data)
    return (
        zlib.crc32(text) + 1,
        text.decode(),
        *map(storable, columns_of(data)),
        data.get("last_event_at", ""),
        bool(data.get("open_turn")),
        max(data.get("base_seq", 0), data.get("offloaded_seq", 0)),
        data.get("last_seq", 0),
        _filterable(data.get("metadata")),
    )


def storable(value: Any) -> Any:
    """Return a value for a column: the server's text cannot hold the character zero, which stands as one that means nothing."""
    return value.replace("\x00", _ZERO) if type(value) is str else value


def _filterable(metadata: Mapping[str, Any] | None) -> str | None:
    return filter_text(metadata) if metadata else None


def filter_text(value: Any) -> str:
    """Return metadata, or a value that it is to hold, as JSON for the server, whose JSON cannot hold the character zero either."""
    return orjson.dumps(value).decode().replace("\\u0000", _ZERO)
