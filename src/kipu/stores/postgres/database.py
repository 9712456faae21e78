"""Connections to one database: statements that are seen through, tried again where the server asks for it, and translated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar, cast

import psycopg
from psycopg_pool import AsyncConnectionPool

from kipu.errors import StoreClosedError, StoreUnavailableError
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.failures import TRY_AGAIN, is_lost, translated

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = psycopg.AsyncConnection[Row]
Work: TypeAlias = Callable[[Connection], Awaitable[T]]

WAIT_S = 10.0  # for a connection, and for a server that is away for a moment
_TRIES = 6
_PAUSE_S = 0.02


class Database:
    """Run statements over a pool of connections, each in a transaction of its own unless several are asked for together."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._closed = False
        self._pool = AsyncConnectionPool(
            address.driver_url,
            kwargs=connection_settings(address),
            min_size=1,
            max_size=address.connections,
            timeout=WAIT_S,
            open=False,
            name="kipu",
        )

    @property
    def url(self) -> str:
        """Return the URL without its password."""
        return self.address.shown

    async def open(self) -> None:
        """Connect. Raises: StoreUnavailableError where that is not possible."""
        with translated(self.url):
            # One try, whose error says why: a pool that cannot connect only says that it took too long.
            probe = await self.connect()
            await probe.close()
            await self._pool.open(wait=True, timeout=WAIT_S)

    async def connect(self) -> Connection:
        """Return a connection beside the pool, which its caller closes."""
        settings = {"connect_timeout": int(WAIT_S), **connection_settings(self.address)}
        connect = cast("Callable[..., Awaitable[Connection]]", psycopg.AsyncConnection.connect)
        return await connect(self.address.driver_url, **settings)

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement that only reads; it is asked again where a connection was lost."""
        return await self.reading(lambda connection: fetch(connection, sql, values))

    async def reading(self, work: Work[T]) -> T:
        """Do work that changes nothing, once more over another connection where one was lost."""
        return await self._seen_through(self._again(work, may_repeat=is_lost))

    async def changing(self, work: Work[T]) -> T:
        """Do work that changes something, seen through when the caller is cancelled; repeated only where nothing happened.

        Raises: StoreUnavailableError, with the driver's error as its cause: `is_lost` of that says that it may have happened.
        """
        return await self._seen_through(self._again(work, may_repeat=lambda _error: False))

    async def together(self, work: Work[T]) -> T | None:
        """Do work that changes something in one transaction, and return what it gives.

        Whatever it raises rolls everything back; `psycopg.Rollback` does no more than that, and None is returned.
        """

        async def inside(connection: Connection) -> T | None:
            async with connection.transaction():
                return await work(connection)
            return None

        return await self.changing(inside)

    async def _again(self, work: Work[T], *, may_repeat: Callable[[Exception], bool]) -> T:
        for number in range(_TRIES):
            try:
                async with self._connection() as connection:
                    return await work(connection)
            except Exception as error:
                if number == _TRIES - 1 or not (isinstance(error, TRY_AGAIN) or may_repeat(error)):
                    raise
            await pause(number)
        raise AssertionError

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        if self._closed:
            raise StoreClosedError(store=self.url)
        async with self._pool.connection() as connection:
            yield connection

    async def _seen_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work gives. A cancelled caller gets it too where it happened, and is cancelled at its next await."""
        task = asyncio.ensure_future(work)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                cancelled = error
            except Exception:  # noqa: BLE001 - it is raised below, translated
                break
        with translated(self.url):
            if cancelled is not None and task.exception() is not None:
                raise cancelled
            outcome = task.result()
        if cancelled is not None:
            current = asyncio.current_task()
            if current is None:
                raise cancelled
            current.uncancel()
            current.cancel()
        return outcome

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._pool.close(timeout=WAIT_S)


def connection_settings(address: Address) -> dict[str, Any]:
    """Return what every connection is made with. A pooler between cannot keep what is set for a session, so nothing is then."""
    settings: dict[str, Any] = {"autocommit": True, "application_name": "kipu"}
    if address.prepare:
        settings["options"] = f"-c statement_timeout={int(address.statement_timeout_s * 1000)}"
        settings["prepare_threshold"] = 1
    else:
        settings["prepare_threshold"] = None
    return settings


async def fetch(connection: Connection, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Run a statement and return its rows, bytes as bytes."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(sql, values)
    return [] if cursor.description is None else await cursor.fetchall()


async def run(connection: Connection, sql: str, values: Sequence[Any] = ()) -> int:
    """Run a statement and return how many rows it touched."""
    cursor = await connection.execute(sql, values)
    return cursor.rowcount


async def pause(number: int) -> None:
    """Wait a moment before the try after try `number`, never as long as somebody else does."""
    await asyncio.sleep(_PAUSE_S * 2**number * (0.5 + random.random()))  # noqa: S311


def gave_up(url: str) -> StoreUnavailableError:
    """Return what to raise when others kept changing a session."""
    return StoreUnavailableError(store=url, reason="others keep changing the session at the same moment")
