"""A TCP proxy before PostgreSQL that cuts its lines, delays them, and closes one half of them: what networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_PIECE_BYTES = 65_536


class LineProxy:
    """Hand bytes between clients on TCP and a server's socket, whose folder is asked for anew for every line. `url` leads through it."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._ends: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()  # to the client, to the server
        self._tasks: set[asyncio.Task[None]] = set()
        self.delay_s = 0.0  # of every piece, each way
        self.url = ""

    @property
    def line_count(self) -> int:
        """Return how many lines there are."""
        return len(self._ends)

    def cut(self) -> None:
        """End every line at once, with whatever is on the way."""
        for ends in list(self._ends):
            for end in ends:
                end.transport.abort()

    def half_close(self, *, towards_server: bool) -> None:
        """Tell one side of every line that the other has nothing more to say; the other way stays open."""
        for ends in list(self._ends):
            end = ends[1 if towards_server else 0]
            with suppress(OSError, RuntimeError):
                end.write_eof()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Be one line until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            there, back = await asyncio.open_unix_connection(self._folder() / ".s.PGSQL.5432")
        except OSError:  # the server is not there
            writer.transport.abort()
            return
        ends = (writer, back)
        self._ends.add(ends)
        try:
            await asyncio.gather(self._hand(reader, back), self._hand(there, writer))
        except asyncio.CancelledError:
            pass  # the proxy ends
        finally:
            self._ends.discard(ends)
            for end in ends:
                end.transport.abort()

    async def _hand(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, RuntimeError):
            while data := await reader.read(_PIECE_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def end(self) -> None:
        """End every line and wait for it."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def line_proxy(folder: Callable[[], Path]) -> AsyncIterator[LineProxy]:
    """Give a proxy before the server that has its socket in a folder, at a port of its own."""
    proxy = LineProxy(folder)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
