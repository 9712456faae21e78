"""Where a chat's lines come from: an editor on a terminal, or a pipe."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from kipu.cli.chat.editor import EditedLines
    from kipu.cli.chat.live_area import LiveArea

CHUNK_BYTES = 65_536
CHUNKS_AHEAD = 2
CTRL_C_AGAIN = "Ctrl-C again ends the chat, as Ctrl-D does"


@dataclass(slots=True)
class Desk:
    """What the editor needs of the chat. `complete` gives, for the text before the cursor, words with how far back they begin."""

    complete: Callable[[str], list[tuple[str, int, str]]]
    interrupt: Callable[[], bool]
    live: LiveArea | None = None
    history: Path | None = None
    kept: Callable[[str], str] = lambda line: line  # what of an entered line the history keeps
    attach: Callable[[EditedLines | None], None] = lambda _lines: None
    hint: Callable[[str], None] = field(default=lambda _text: None)


class LineSource(Protocol):
    """Give one line after another, until there are no more."""

    is_interactive: bool
    is_live: bool  # lines come also while the chat works

    def lines(self) -> AsyncGenerator[str, None]:
        """Return the lines."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keep for the next line what comes in the block while none is waited for."""
        ...


def line_source(desk: Desk, *, is_edited: bool) -> LineSource:
    """Return an editor where a person types and stdout is theirs, else the lines of stdin."""
    if is_edited and sys.stdin.isatty() and sys.stdout.isatty():
        try:
            from kipu.cli.chat.editor import EditedLines

            return EditedLines(desk)
        except ImportError:
            return PipedLines(sys.stdin.buffer, is_interactive=True)
    return PipedLines(sys.stdin.buffer, is_interactive=False)


class PipedLines:
    """Read lines from a pipe in a thread of its own, so that an answer can be interrupted while no line comes."""

    is_live = False

    def __init__(self, file: BinaryIO, *, is_interactive: bool) -> None:
        self._file = file
        self.is_interactive = is_interactive

    async def lines(self) -> AsyncGenerator[str, None]:
        """Yield every line; bytes that are no UTF-8 become the replacement character."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes] = asyncio.Queue()
        room = threading.Semaphore(CHUNKS_AHEAD)  # more than that waits in the pipe, not in memory

        def read() -> None:
            chunk = b"-"
            while chunk:
                room.acquire()
                chunk = self._chunk()
                try:
                    loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                except RuntimeError:
                    return  # the chat is over

        # A daemon: a thread that waits for a line must not keep the process alive.
        threading.Thread(target=read, name="kipu-stdin", daemon=True).start()
        begun: list[bytes] = []
        while chunk := await chunks.get():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield _text(b"".join([*begun, end]))
                begun.clear()
            begun.append(rest)
            room.release()
        if last := b"".join(begun):
            yield _text(last)

    def held(self) -> AbstractContextManager[None]:
        """Do nothing: a pipe keeps what it has."""
        return nullcontext()

    def _chunk(self) -> bytes:
        """Return what can be read, b"" at the end. No buffer's lock may be held when the process ends meanwhile."""
        try:
            return os.read(self._file.fileno(), CHUNK_BYTES)
        except io.UnsupportedOperation:  # no file of the system
            return self._file.read(CHUNK_BYTES)
        except (OSError, ValueError):
            return b""


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


class LineReader:
    """Take lines one by one; whoever waits for one may give up waiting, and the line is there for the next."""

    def __init__(self, source: LineSource) -> None:
        self._lines = source.lines()
        self.is_interactive = source.is_interactive
        self._coming: asyncio.Future[str | None] | None = None

    @property
    def coming(self) -> asyncio.Future[str | None]:
        """Return the next line as it comes, None at the end; `take` it when it is there."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._next())
        return self._coming

    async def take(self) -> str | None:
        """Return the next line, None at the end."""
        line = await asyncio.shield(self.coming)
        if line is not None:
            self._coming = None
        return line

    async def close(self) -> None:
        """Stop reading."""
        if self._coming is not None and not self._coming.done():
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)
        await self._lines.aclose()

    async def _next(self) -> str | None:
        return await anext(self._lines, None)
