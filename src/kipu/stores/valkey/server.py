"""Connections to one server: each is one caller's from the question to the answer, and closed when the answer was not read.

So no caller ever reads what another one asked for, however it was cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from valkey.asyncio.connection import Connection, SSLConnection
from valkey.exceptions import NoScriptError, ValkeyError
from valkey.exceptions import TimeoutError as ValkeyTimeoutError

from kipu.errors import StoreClosedError, StoreUnavailableError
from kipu.stores.under_way import UnderWay
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.failures import is_lost, leads_elsewhere, translated
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.scripts import TOUCH, Script
from kipu.stores.valkey.server_settings import ServerSettings, settings_of

T = TypeVar("T")
Word: TypeAlias = str | bytes | int
_TRIES = 4
_PAUSE_S = 0.02
_IO_ERRORS = (ValkeyError, OSError, EOFError, asyncio.IncompleteReadError)


class Line(Protocol):
    """What is used of the client's connections."""

    @property
    def is_connected(self) -> bool:
        """Return whether it is open."""
        ...

    async def connect(self) -> None:
        """Open it and say who asks."""
        ...

    def pack_command(self, *words: Word) -> list[bytes]:
        """Return a command as it is sent."""
        ...

    async def send_packed_command(self, command: list[bytes]) -> None:
        """Send a command."""
        ...

    async def read_response(self) -> Any:
        """Return the next answer."""
        ...

    async def disconnect(self, nowait: bool = False) -> None:
        """Close it."""
        ...


class Server:
    """Ask one server, over a few connections."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.settings = ServerSettings()
        self._idle: list[Line] = []
        self._in_use: set[Line] = set()
        self._slots = asyncio.Semaphore(address.connections)
        self._under_way = UnderWay()
        self.seen_through = self._under_way.seen_through
        self._last_host = 0
        self._must_look = True
        self._generation = 0  # what was connected before the last loss is not used again
        self._closed = False
        self._route = KeyNames(address.prefix).meta  # by it a node of a cluster knows whether the store is its own

    @property
    def url(self) -> str:
        """Return the URL without its password."""
        return self.address.shown

    # ---- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, *words: Word) -> Any:
        """Return the answer to a command that only reads; it is asked again where a connection was lost."""
        return await self._again(lambda: self._exchange(words))

    async def look(self, script: Script, *words: Word) -> Any:
        """Return the answer of a script that only reads."""
        return await self._again(lambda: self._run(script, words))

    async def change(self, script: Script, *words: Word) -> Any:
        """Return the answer of a script that changes something; where `is_lost` of the error, it may have happened.

        Raises: StoreUnavailableError, also where fewer replicas than wanted have it: then it has happened.
        """
        with translated(self.url):
            return await self._run(script, words, is_change=True)

    async def settle(self, script: Script, *words: Word) -> Any:
        """Return the answer of a script that changes something and may be run twice; as many replicas as wanted have all before it.

        Raises: StoreUnavailableError.
        """
        return await self._again(lambda: self._run(script, words, is_change=True))

    async def confirm(self) -> None:
        """Return once as many replicas as wanted have all that stands at the server. Raises: StoreUnavailableError."""
        if self.address.replicas:
            await self.settle(TOUCH)

    async def command(self, *words: Word) -> Any:
        """Return the answer to a command that changes something and may be given twice."""
        return await self._again(lambda: self._exchange(words))

    async def _again(self, ask: Any) -> Any:
        for number in range(_TRIES):
            try:
                with translated(self.url):
                    return await ask()
            except StoreUnavailableError as error:
                if number == _TRIES - 1 or not is_lost(error):
                    raise
            await pause(number)
        raise AssertionError

    async def _run(self, script: Script, words: Sequence[Word], *, is_change: bool = False) -> Any:
        async with self._connection() as connection:
            try:
                answer = await self._exchanged(connection, ("EVALSHA", script.digest, 1, self._route, *words))
            except NoScriptError:  # the server was restarted, or another one took over: nothing has happened
                answer = await self._exchanged(connection, ("EVAL", script.text, 1, self._route, *words))
            if is_change and self.address.replicas:
                await self._await_replicas(connection)
            return answer

    async def _await_replicas(self, connection: Line) -> None:
        wanted = self.address.replicas
        limit_ms = int(self.address.timeout_s * 500)  # shorter than an answer may take
        have = await self._exchanged(connection, ("WAIT", wanted, limit_ms))
        if have < wanted:
            reason = (
                f"the server has kept it, but only {have} of {wanted} replicas (replicas={wanted}) have confirmed it"
            )
            raise StoreUnavailableError(store=self.url, reason=reason)

    async def _exchange(self, words: Sequence[Word]) -> Any:
        async with self._connection() as connection:
            return await self._exchanged(connection, words)

    # ---- connections -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Line]:
        if self._closed:
            raise StoreClosedError(store=self.url)
        try:
            async with asyncio.timeout(self.address.timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreUnavailableError(store=self.url, reason="every connection is in use") from None
        try:
            connection, generation = self._idle.pop() if self._idle else await self.connect(), self._generation
            self._in_use.add(connection)
            try:
                yield connection
            except BaseException as error:
                if not _is_in_order(error):
                    await _closed(connection)
                    if not isinstance(error, asyncio.CancelledError):
                        await self._forget_idle()  # whatever ended this one has ended the others too
                raise
            finally:
                self._in_use.discard(connection)
                await self._put_back(connection, generation)
        finally:
            self._slots.release()

    async def _put_back(self, connection: Line, generation: int) -> None:
        if connection.is_connected and not self._closed and generation == self._generation:
            self._idle.append(connection)
        else:
            await _closed(connection)

    async def _forget_idle(self) -> None:
        idle, self._idle, self._must_look = self._idle, [], True
        self._generation += 1
        for connection in idle:
            await _closed(connection)

    async def connect(self) -> Line:
        """Return a connection to the host that takes writes, looked at first where another server may have taken over."""
        hosts = self.address.hosts
        failure: BaseException | None = None
        for number in range(len(hosts)):
            place = (self._last_host + number) % len(hosts)
            connection = self._made(hosts[place])
            try:
                async with _limited(self.address.timeout_s):
                    await connection.connect()
                if self._must_look or len(hosts) > 1:
                    settings = await settings_of(lambda *words, to=connection: self._exchanged(to, words))
                    if settings.is_replica and number < len(hosts) - 1:
                        await _closed(connection)
                        continue
                    settings.require(self.address)
                    self.settings, self._must_look = settings, False
            except BaseException as error:
                await _closed(connection)
                if number == len(hosts) - 1 or not is_lost(error):
                    raise
                failure = error
            else:
                self._last_host = place
                return connection
        raise failure or StoreUnavailableError(store=self.url, reason="no host of the URL takes writes")

    def _made(self, host: tuple[str, int]) -> Line:
        address = self.address
        given: dict[str, Any] = {
            "host": host[0],
            "port": host[1],
            "db": address.db,
            "username": address.user,
            "password": address.password,
            "socket_timeout": None,  # the client waits in a way that may swallow a cancellation; `_exchanged` waits instead
            "socket_connect_timeout": address.timeout_s,
            "socket_keepalive": True,
            "client_name": "kipu",
            "lib_name": None,
            "lib_version": None,
        }
        if address.tls is None:
            return cast("Line", Connection(**given))
        check = address.tls.get("ssl_check_hostname", "true").lower() in {"true", "on", "1", "yes"}
        return cast("Line", SSLConnection(**{**given, **address.tls, "ssl_check_hostname": check}))

    # ---- asking once, and the end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let what is under way end, and close every connection."""
        self._closed = True
        await self._under_way.ended(timeout_s=self.address.timeout_s)
        idle, self._idle = self._idle, []
        for connection in [*idle, *self._in_use]:
            await _closed(connection)

    async def _exchanged(self, connection: Line, words: Sequence[Word]) -> Any:
        async with _limited(self.address.timeout_s):
            await connection.send_packed_command(connection.pack_command(*words))
            return await connection.read_response()


@asynccontextmanager
async def _limited(limit_s: float) -> AsyncIterator[None]:
    """Raise the client's TimeoutError where it takes longer; the connection is closed then, as it is for every cancellation."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise ValkeyTimeoutError(f"no answer within {limit_s:g} s (timeout_s)") from None


def _is_in_order(error: BaseException) -> bool:
    """Return True where the server has answered, if with an error, and is the one to ask: the connection may be used again."""
    return isinstance(error, (ValkeyError, StoreUnavailableError)) and not is_lost(error) and not leads_elsewhere(error)


async def _closed(connection: Line) -> None:
    with suppress(*_IO_ERRORS):
        await connection.disconnect(nowait=True)


async def pause(number: int) -> None:
    """Wait a moment before the try after try `number`, never as long as somebody else does."""
    await asyncio.sleep(_PAUSE_S * 2**number * (0.5 + random.random()))  # noqa: S311
