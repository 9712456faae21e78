"""Connections to one database: statements that are seen through, tried again where the server asks for it, and translated."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import select
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

import psycopg
import psycopg.errors
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from kipu.errors import StoreClosedError, StoreUnavailableError
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.failures import TRY_AGAIN, is_lost, translated
from kipu.stores.postgres.primary import Primary, driver_settings
from kipu.stores.under_way import UnderWay

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = psycopg.AsyncConnection[Row]
Work: TypeAlias = Callable[[Connection], Awaitable[T]]

WAIT_S = 10.0  # for a server that does not answer a new connection
_TRIES = 6
_PAUSE_S = 0.02
# How long a pool tries by itself to reach a server; after it, whoever asks next begins anew. Its pauses double, so it is short.
_RECONNECT_S = 3.0
# A connection that gives no answer for so many times the statement timeout is cut: its other end may be gone without a word.
_SILENCE = 3
_LOOK_EVERY_S = 1.0
_LOOK_S = 3.0  # for each of several hosts to say whether it is the primary
_MOST_PARSED = 50  # values of a statement that the driver remembers parsed
_PLACE = re.compile(r"%[sb]")
_PATIENT = 60  # for what may take long: removing a session of a million events


class Database:
    """Run statements over a pool of connections, each in a transaction of its own unless several are asked for together."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._closed = False
        self._under_way = UnderWay()
        self._primary = Primary(address)
        self._looking = asyncio.Lock()
        self._look_again_s = 0.0
        self._pool = AsyncConnectionPool(
            self._conninfo,
            kwargs=connection_settings(address),
            min_size=1,
            max_size=address.connections,
            timeout=address.statement_timeout_s,
            reconnect_timeout=_RECONNECT_S,
            check=_check_alive,
            configure=self._checked,
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
            await self._look_round()
            # One try, whose error says why: a pool that cannot connect only says that it took too long.
            probe = await self.connect()
            await probe.close()
            await self._pool.open(wait=True, timeout=WAIT_S)

    async def connect(self) -> Connection:
        """Return a connection beside the pool, which its caller closes."""
        connection = await self._connect(self._primary.conninfo)
        await self._primary.check(connection)
        return connection

    async def _connect(self, conninfo: str) -> Connection:
        connect = cast("Callable[..., Awaitable[Connection]]", psycopg.AsyncConnection.connect)
        return await connect(conninfo, **connection_settings(self.address))

    async def _checked(self, connection: Connection) -> None:
        """Refuse a connection that does not lead to the primary, also where nothing was heard since another one took over."""
        await self._look_round()
        await self._primary.check(connection)

    async def _look_round(self) -> None:
        async with self._looking:  # whoever comes meanwhile waits for what is found
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._look_again_s:
                await asyncio.gather(*(self._look_at(conninfo) for conninfo in self._primary.each_host))
                self._look_again_s = now_s + _LOOK_EVERY_S

    async def _look_at(self, conninfo: str) -> None:
        """Find out whether one of several hosts is the primary; who does not answer soon is not waited for."""
        with suppress(psycopg.Error, OSError, TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                connection = await self._connect(conninfo)
                await self._primary.check(connection)
                await connection.close()

    async def _conninfo(self) -> str:
        return self._primary.conninfo

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement that only reads; it is asked again where a connection was lost."""
        return await self.reading(lambda connection: fetch(connection, sql, values=values))

    async def reading(self, work: Work[T]) -> T:
        """Do work that changes nothing, once more over another connection where one was lost."""
        return await self._seen_through(self._again(work, may_repeat=is_lost))

    async def changing(self, work: Work[T]) -> T:
        """Do work that changes something, seen through when the caller is cancelled; repeated only where nothing happened.

        Raises: StoreUnavailableError, with the driver's error as its cause: `is_lost` of that says that it may have happened.
        """
        return await self._seen_through(self._again(work, may_repeat=lambda _error: False))

    async def together(self, work: Work[T], *, is_patient: bool = False) -> T | None:
        """Do work that changes something in one transaction, and return what it gives; `is_patient`: however long it takes.

        Whatever it raises rolls everything back; `psycopg.Rollback` does no more than that, and None is returned. It is begun
        anew where its connection was lost before it was to be committed.
        """
        is_done = False

        async def inside(connection: Connection) -> T | None:
            nonlocal is_done
            is_done = False
            async with connection.transaction():
                if is_patient:
                    await run(connection, "SELECT set_config('statement_timeout', '0', true)")
                if not self.address.prepare:  # a pooler keeps no setting between transactions
                    await run(connection, _NO_SLEEP, values=(self.address.timeout_ms,))
                result = await work(connection)
                is_done = True
                return result
            return None

        lost = self._again(inside, may_repeat=lambda error: is_lost(error) and not is_done, is_patient=is_patient)
        return await self._seen_through(lost)

    async def _again(self, work: Work[T], *, may_repeat: Callable[[Exception], bool], is_patient: bool = False) -> T:
        for number in range(_TRIES):
            try:
                return await self._over_one(work, is_patient=is_patient)
            except Exception as error:
                if isinstance(error, PoolTimeout) and self._primary.refusal is not None:
                    raise StoreUnavailableError(store=self.url, reason=self._primary.refusal) from error
                if number == _TRIES - 1 or not (isinstance(error, TRY_AGAIN) or may_repeat(error)):
                    raise
                if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                    # They lead to a server that is primary no more; another one may have taken over.
                    await self._pool.drain()
            await pause(number)
        raise AssertionError

    async def _over_one(self, work: Work[T], *, is_patient: bool) -> T:
        """Do work over a connection of the pool, whose own block would ask it to commit once more what is committed."""
        if self._closed:
            raise StoreClosedError(store=self.url)
        limit_s = self.address.statement_timeout_s * (_PATIENT if is_patient else _SILENCE)
        connection = await self._pool.getconn()
        watch = asyncio.get_running_loop().call_later(limit_s, _cut, connection)
        try:
            return await work(connection)
        finally:
            watch.cancel()
            await self._pool.putconn(connection)

    async def _seen_through(self, work: Coroutine[Any, Any, T]) -> T:
        with translated(self.url):
            return await self._under_way.seen_through(work)

    async def close(self) -> None:
        """Let what is under way end, and close every connection."""
        self._closed = True
        await self._under_way.ended(timeout_s=WAIT_S)
        await self._pool.close(timeout=WAIT_S)


def connection_settings(address: Address) -> dict[str, Any]:
    """Return what every connection is made with, beside what the URL says.

    A pooler between cannot keep what is set for a connection, so with `prepare=off` nothing is.
    """
    given = driver_settings(address)
    settings: dict[str, Any] = {"autocommit": True, "prepare_threshold": 1 if address.prepare else None}
    settings |= {name: value for name, value in _DEFAULTS.items() if name not in given}
    if address.prepare:
        limits = " ".join(f"-c {name}={address.timeout_ms}" for name in _LIMITS)
        settings["options"] = f"{given.get('options', '')} {limits}".strip()
    return settings


_LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout")
_NO_SLEEP = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
_DEFAULTS = {
    "application_name": "kipu",
    "connect_timeout": int(WAIT_S),
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


async def _check_alive(connection: Connection) -> None:
    """Raise where the server has ended a connection while it lay idle: nothing is to be read of one that lives."""
    poller = select.poll()
    poller.register(connection.pgconn.socket, select.POLLIN | select.POLLHUP)
    if poller.poll(0):
        try:
            connection.pgconn.consume_input()
            connection.pgconn.consume_input()  # the first may read the farewell, and only the second the end
        except psycopg.Error:
            await connection.close()
            raise


def _cut(connection: Connection) -> None:
    """End a connection that gives no answer, so that whoever waits for it goes on."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)


async def fetch(connection: Connection, sql: str, *, values: Sequence[Any] = ()) -> list[Row]:
    """Run a statement and return its rows, bytes as bytes."""
    if len(values) > _MOST_PARSED:
        raw = psycopg.AsyncRawCursor(connection)
        await raw.execute(_numbered(sql), values, binary=True)
        return [] if raw.description is None else await raw.fetchall()
    cursor = connection.cursor(binary=True)
    await cursor.execute(sql, values)
    return [] if cursor.description is None else await cursor.fetchall()


@cache
def _numbered(sql: str) -> bytes:
    """Return a statement with its places numbered, as the server has them: the driver parses longer ones each time anew."""
    count = itertools.count(1)
    return _PLACE.sub(lambda _: f"${next(count)}", sql).encode()


async def run(connection: Connection, sql: str, *, values: Sequence[Any] = ()) -> int:
    """Run a statement and return how many rows it touched."""
    cursor = await connection.execute(sql, values)
    return cursor.rowcount


async def pause(number: int) -> None:
    """Wait a moment before the try after try `number`, never as long as somebody else does."""
    await asyncio.sleep(_PAUSE_S * 2**number * (0.5 + random.random()))  # noqa: S311


def gave_up(url: str) -> StoreUnavailableError:
    """Return what to raise when others kept changing a session."""
    return StoreUnavailableError(store=url, reason="others keep changing the session at the same moment")
