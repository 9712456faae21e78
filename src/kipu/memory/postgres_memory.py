"""Memory in the tables of a PostgreSQL store: one for all machines (contract: `ports.memory.MemoryStore`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from psycopg.errors import UndefinedTable

from kipu.errors import (
    EncryptionError,
    InputError,
    OlderFormatError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from kipu.memory.statements import Asked, Hold, Row, Statement, Steps
from kipu.memory.tabled_memory import TabledMemory
from kipu.stores.postgres.database import Connection, Database, fetch, pause, run
from kipu.stores.postgres.failures import is_lost
from kipu.stores.postgres.heads import sql

T = TypeVar("T")
_TRIES = 6
_PART = re.compile(r"@(\w+)|\?")
_ZERO = "\ufdd0"  # the server's text cannot hold the character zero
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_SEALED = "SELECT value FROM {schema}.memory_meta WHERE name = 'is_sealed'"
_SEAL = "INSERT INTO {schema}.memory_meta(name, value) VALUES ('is_sealed', %s) ON CONFLICT DO NOTHING"
# Whoever changes facts of an owner has his row until the transaction ends: what was decided on is still so then.
_HOLD = (
    "INSERT INTO {schema}.memory_owners AS o (tenant, owner, version) VALUES (%s, %s, 1)"
    " ON CONFLICT (tenant, owner) DO UPDATE SET version = o.version + 1"
)
_LET_GO = "DELETE FROM {schema}.memory_owners WHERE tenant = %s AND owner = %s"
_CLEANED = ("memory_facts", "memory_terms", "memory_sources")


class PostgresFacts:
    """Run work on the tables of a store's memory, over the store's own connections."""

    def __init__(self, database: Database, *, is_sealed: bool, may_write: Callable[[], bool]) -> None:
        self._database = database
        self._is_sealed = is_sealed
        self._may_write = may_write
        self._is_known = False
        self._is_closed = False
        self.place = f"{database.url} (memory)"

    async def read(self, work: Callable[[], Steps[T]], *, empty: T) -> T:
        """Return what `work` finds in one state of the tables, `empty` where nothing was ever kept."""

        async def look(connection: Connection) -> T:
            async with connection.transaction():
                await run(connection, _SNAPSHOT)
                if not await self._holds_something(connection):
                    return empty
                self._is_known = True
                return await self._carry_out(connection, work())

        return await self._told(lambda: self._database.reading(look))

    async def write(self, work: Callable[[], Steps[T]]) -> T:
        """Do `work` in one transaction, again where its connection was lost: twice is as good as once."""
        if not self._may_write():
            raise StoreReadOnlyError(store=self.place, reason="its tables are a newer Kipu's: update Kipu to write")

        async def whole() -> T:
            done: list[T] = []

            async def inside(connection: Connection) -> None:
                if not await self._holds_something(connection):
                    text = sql(_SEAL, self._database)
                    await run(connection, text, values=(str(int(self._is_sealed)),))
                    await self._holds_something(connection)  # whoever was first decided
                done.append(await self._carry_out(connection, work()))

            await self._database.together(inside)
            self._is_known = True
            return done[-1]

        return await self._told(lambda: _again(whole))

    async def forget(self, work: Callable[[], Steps[T]], *, nothing: T) -> T:
        """Do `work`, then let the server clean up. What it keeps of removed rows is said in docs/concepts/memory.md."""

        def is_kept() -> Steps[bool]:
            rows = yield Statement("SELECT 1 FROM @meta")
            return bool(rows)

        if not await self.read(is_kept, empty=False):
            return nothing
        outcome = await self.write(work)
        for table in _CLEANED:
            with suppress(StoreError, InputError):  # a server that has none, or a role that may not
                await self._clean(table)
        return outcome

    async def _clean(self, table: str) -> None:
        text = sql(f"VACUUM {{schema}}.{table}", self._database)
        await self._database.changing(lambda connection: run(connection, text))

    async def close(self) -> None:
        """Answer no more. The connections are the store's."""
        self._is_closed = True

    async def _told(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._is_closed:
            raise StoreClosedError(store=self.place)
        try:
            return await work()
        except StoreCorruptError as error:
            if isinstance(error.__cause__, UndefinedTable):
                raise OlderFormatError(store=self._database.url, reason="they have no place for facts") from error
            raise

    async def _holds_something(self, connection: Connection) -> bool:
        """Return whether anything was ever kept. Raises: EncryptionError where it is not as sealed as its store is."""
        if not self._is_known:
            rows = await fetch(connection, sql(_SEALED, self._database))
            if not rows:
                return False
            _require_seal(self.place, is_sealed=self._is_sealed, found=rows[0][0] == "1")
        return True

    async def _carry_out(self, connection: Connection, steps: Steps[T]) -> T:
        """Run each statement and hand its rows to the work."""
        try:
            asked = next(steps)
            while True:
                asked = steps.send(await self._answered(connection, asked))
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    async def _answered(self, connection: Connection, asked: Asked) -> list[Row]:
        if isinstance(asked, Hold):
            text = sql(_LET_GO if asked.is_over else _HOLD, self._database)
            await run(connection, text, values=tuple(map(_storable, asked[:2])))
            return []
        text = sql(_server_text(asked.sql), self._database)
        rows = await fetch(connection, text, values=tuple(map(_storable, asked.values)))
        return [tuple(map(_given, row)) for row in rows]


class PostgresMemory(TabledMemory):
    """Keep facts durably for any number of machines, in the schema of their store."""

    def __init__(
        self, database: Database, *, is_sealed: bool = False, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(PostgresFacts(database, is_sealed=is_sealed, may_write=may_write))


def _require_seal(place: str, *, is_sealed: bool, found: bool) -> None:
    if found and not is_sealed:
        raise EncryptionError(store=place, reason="the memory is sealed, and its store was opened without keys")
    if is_sealed and not found:
        raise EncryptionError(store=place, reason="the memory is not sealed, and its store is")


@lru_cache(maxsize=512)
def _server_text(text: str) -> str:
    """Return a statement as the server and its driver have it."""
    return _PART.sub(lambda part: f"{{schema}}.memory_{part[1]}" if part[1] else "%s", text)


def _storable(value: Any) -> Any:
    return value.replace("\x00", _ZERO) if type(value) is str else value


def _given(value: Any) -> Any:
    return value.replace(_ZERO, "\x00") if type(value) is str and _ZERO in value else value


async def _again(work: Callable[[], Awaitable[T]]) -> T:
    """Do it once more where a connection was lost, so that nobody knows whether it happened."""
    for number in itertools.count():
        try:
            return await work()
        except StoreUnavailableError as error:
            if number == _TRIES - 1 or error.__cause__ is None or not is_lost(error.__cause__):
                raise
        await pause(number)
    raise AssertionError
