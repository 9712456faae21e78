"""Live pieces by PostgreSQL's NOTIFY, over one line beside the store's own: no append waits for it, and no commit for its flush."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg

from kipu.ports.live import CONTROL, Hear
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.database import Connection, connection_settings

logger = logging.getLogger(__name__)
MOST_BYTES = 7_900  # a payload has less than 8000
_AGAIN_S = 1.0
_LOST = (psycopg.Error, OSError, TimeoutError)
# A notice takes a transaction; nobody waits for the disk of one that may be lost.
_UNFLUSHED = b"SET synchronous_commit = off"
_SEND = b"SELECT pg_notify(u.topic, u.text) FROM unnest(%s::text[], %s::text[]) AS u(topic, text)"


class NotifyChannel:
    """Carry texts by NOTIFY (contract: `LiveChannel`). Behind a transaction pooler nothing is heard, and so nothing is sent."""

    most_bytes = MOST_BYTES

    def __init__(self, address: Address) -> None:
        self._address = address
        self._topics: dict[str, str] = {}  # by the name of the channel
        self._hear: Hear | None = None
        self._connected: Callable[[], None] = _nobody
        self._connection: Connection | None = None
        self._busy = asyncio.Lock()
        self._lost = asyncio.Event()
        self._standing: asyncio.Task[None] | None = None

    async def open(self, hear: Hear, connected: Callable[[], None]) -> None:
        """Begin to hear what everybody does."""
        self._hear, self._connected = hear, connected
        self._topics[self._name(CONTROL)] = CONTROL
        self._standing = asyncio.ensure_future(self._stand())

    def _name(self, topic: str) -> str:
        """Return the channel of a topic: short, and of no other schema."""
        text = f"{self._address.schema}\0{topic}".encode()
        return f"kipu_live_{hashlib.blake2b(text, digest_size=16).hexdigest()}"

    # ---- the line --------------------------------------------------------------------------------------------------

    async def _stand(self) -> None:
        """Have a line, and another one after it."""
        while True:
            self._lost.clear()
            try:
                await self._connect()
                self._connected()
                await self._lost.wait()
            except _LOST as error:
                logger.debug("no live pieces over PostgreSQL for now: %s", error)
            finally:
                await self._drop()
            await asyncio.sleep(_AGAIN_S)

    async def _connect(self) -> None:
        settings = connection_settings(self._address)
        settings["application_name"] = f"{settings.get('application_name', 'kipu')} live"
        connection: Connection = await psycopg.AsyncConnection.connect(self._address.driver_url, **settings)
        self._connection = connection
        connection.add_notify_handler(lambda notice: self._take(notice.channel, notice.payload))
        async with self._busy:
            await connection.execute(_UNFLUSHED)
            for name in list(self._topics):
                await connection.execute(f'LISTEN "{name}"'.encode())
        self._look_on(connection)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*_LOST):
                self._look_away(connection)
                await connection.close()

    def _look_on(self, connection: Connection) -> None:
        """Take notices in as soon as the line has any; while a statement runs the driver does."""
        if not connection.closed:
            asyncio.get_running_loop().add_reader(connection.pgconn.socket, self._pump, connection)
            self._pump(connection)

    def _look_away(self, connection: Connection) -> None:
        if not connection.closed:
            asyncio.get_running_loop().remove_reader(connection.pgconn.socket)

    def _pump(self, connection: Connection) -> None:
        try:
            connection.pgconn.consume_input()
            while notice := connection.pgconn.notifies():
                self._take(notice.relname.decode(), notice.extra.decode())
        except (psycopg.Error, UnicodeDecodeError):
            with suppress(*_LOST):
                self._look_away(connection)
            self._lost.set()

    def _take(self, name: str, text: str) -> None:
        topic = self._topics.get(name)
        if topic is not None and self._hear is not None:
            self._hear(topic, text)

    async def _execute(self, sql: bytes, values: Sequence[object] = ()) -> None:
        """Run a statement on the line. Raises: ConnectionError."""
        async with self._busy:
            connection = self._connection
            if connection is None or connection.closed:
                raise ConnectionError("there is no line")
            self._look_away(connection)
            try:
                await connection.execute(sql, values)
            except psycopg.errors.OperationalError as error:
                self._lost.set()
                raise ConnectionError(str(error)) from error
            except psycopg.Error as error:  # the server's queue is full, for instance: the line is as good as before
                raise ConnectionError(str(error)) from error
            except BaseException:  # cut off in the middle: nobody knows what comes next over it
                self._lost.set()
                raise
            finally:
                if not self._lost.is_set():
                    self._look_on(connection)

    # ---- topics and texts ------------------------------------------------------------------------------------------

    async def listen(self, topic: str) -> None:
        """Hear a topic from now on, or from when there is a line."""
        name = self._name(topic)
        self._topics[name] = topic
        with suppress(ConnectionError):
            await self._execute(f'LISTEN "{name}"'.encode())

    async def unlisten(self, topic: str) -> None:
        """Hear it no more."""
        name = self._name(topic)
        self._topics.pop(name, None)
        with suppress(ConnectionError):
            await self._execute(f'UNLISTEN "{name}"'.encode())

    async def send(self, messages: Sequence[tuple[str, str]]) -> None:
        """Send texts in one transaction. Raises: ConnectionError."""
        if messages:
            topics = [self._name(topic) for topic, _ in messages]
            await self._execute(_SEND, (topics, [text for _, text in messages]))

    async def close(self) -> None:
        """Give the line back."""
        if self._standing is not None:
            self._standing.cancel()
            await asyncio.gather(self._standing, return_exceptions=True)
            self._standing = None


def _nobody() -> None:
    """Tell nobody."""
