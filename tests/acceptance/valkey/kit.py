"""What the Valkey tests share: stores, records, a raw line to the server, and a proxy that cuts, swallows and keeps silent."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import orjson

from kipu.ports.clock import Clock
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, Record, StoredEvent
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.scripts import WRITE
from kipu.stores.valkey.server import Server
from kipu.stores.valkey.store import ValkeyStore
from kipu.testing.fakes import FakeLiveness

TIME = "2027-01-15T08:00:00.000000Z"


@asynccontextmanager
async def opened(url: str, *, clock: Clock | None = None) -> AsyncIterator[ValkeyStore]:
    """Give a store, with the server's clock unless another is given."""
    store = await ValkeyStore.open(url, liveness=FakeLiveness(), clock=clock)
    try:
        yield store
    finally:
        await store.close()


def record(text: str, *, event_type: str = "user_message") -> Record:
    """Return a record with an id of its own."""
    return Record(f"0190-{uuid.uuid4().hex}", event_type, TIME, orjson.dumps({"content": text}))


async def begin(store: EventStore, session_id: str, **fields: Any) -> Appended:
    """Make a session."""
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "status": "active", **fields})
    return await store.append(session_id, [record("begin", event_type="session_init")], head=patch)


async def log(store: EventStore, session_id: str) -> list[StoredEvent]:
    """Return a whole log."""
    found: list[StoredEvent] = []
    while page := await store.read(session_id, after=len(found)):
        found += page
    return found


def text_of(event: StoredEvent) -> str:
    """Return what `record` put into an event."""
    return str(orjson.loads(event.record.body)["content"])


async def texts(store: EventStore, session_id: str) -> list[str]:
    """Return what a whole log says."""
    return [text_of(event) for event in await log(store, session_id)]


async def ask(url: str, *words: str | int) -> Any:
    """Give the server one command of a test's own."""
    server = Server(Address.parse(url))
    try:
        return await server.ask(*words)
    finally:
        await server.close()


def keys_of(url: str) -> KeyNames:
    """Return the names of a store's keys."""
    return KeyNames(Address.parse(url).prefix)


def everything_said(error: BaseException) -> str:
    """Return all that an error and what lies behind it say."""
    said = [str(error), repr(error), str(getattr(error, "data", ""))]
    return " ".join(said) + (everything_said(error.__cause__) if error.__cause__ else "")


class Proxy:
    """Hand bytes between clients and the server; cut, swallow or keep silent when told to."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._place = (place.hostname or "", place.port or 0)
        self._lines: set[asyncio.StreamWriter] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.swallows_answers = 0  # what is sent arrives, so many answers are lost, and their lines with them
        self.swallows_change = False  # the answer to the next change is lost, and no other
        self.reorders = False  # the next change arrives when its line is gone, just before the one after it
        self._held: asyncio.Event | None = None
        self._late: asyncio.StreamWriter | None = None
        self._answered = asyncio.Event()
        self.is_silent = False  # nothing goes either way, and nobody is told
        self.swallowed = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        there, back = await asyncio.open_connection(*self._place)
        self._lines |= {writer, back}
        await asyncio.gather(self._hand(reader, back), self._hand(there, writer, answers=True))

    async def _hand(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.is_silent:
                    self.swallowed.set()
                    await asyncio.Event().wait()
                if answers and self.swallows_answers:
                    self.swallows_answers -= 1
                    self.swallowed.set()
                    self.cut()
                    return
                if answers:
                    self._answered.set()
                elif WRITE.digest.encode() in data:
                    if self.swallows_change:
                        self.swallows_change, self.swallows_answers = False, 1
                    await self._in_order(writer)
                writer.write(data)
                await writer.drain()
        if writer is self._late:  # its client is gone, and its answer says that it was carried out
            await self._answered.wait()
        writer.close()

    async def _in_order(self, writer: asyncio.StreamWriter) -> None:
        if self.reorders:
            self.reorders, self._held, self._late = False, asyncio.Event(), writer
            self.swallowed.set()
            self.cut(but=writer)
            await self._held.wait()
        elif self._held is not None:
            held, self._held = self._held, None
            self._answered.clear()
            held.set()
            await self._answered.wait()

    def cut(self, *, but: asyncio.StreamWriter | None = None) -> None:
        """End every line at once."""
        for line in self._lines - {but}:
            line.transport.abort()
        self._lines &= {but}


@asynccontextmanager
async def proxied(url: str, *, context: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    """Give a proxy before the server of a URL."""
    proxy = Proxy(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        proxy.tasks.add(task)
        try:
            await proxy.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    proxy.url = f"valkey://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for task in proxy.tasks:
            task.cancel()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
