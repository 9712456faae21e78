"""Where a chat's lines come from: an editor on a terminal, or a pipe."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

CHUNK_BYTES = 65_536
Completions = Callable[[str], list[tuple[str, str]]]


class LineSource(Protocol):
    """Give one line after another, until there are no more."""

    is_interactive: bool

    def __aiter__(self) -> AsyncIterator[str]:
        """Return the lines."""
        ...


def line_source(completions: Completions, *, is_edited: bool) -> LineSource:
    """Return an editor where a person types and stdout is theirs, else the lines of stdin."""
    if is_edited and sys.stdin.isatty() and sys.stdout.isatty():
        try:
            return EditedLines(completions)
        except ImportError:
            return PipedLines(sys.stdin.buffer, is_interactive=True)
    return PipedLines(sys.stdin.buffer, is_interactive=False)


class PipedLines:
    """Read lines from a pipe in a thread of its own, so that an answer can be interrupted while no line comes."""

    def __init__(self, file: BinaryIO, *, is_interactive: bool) -> None:
        self._file = file
        self.is_interactive = is_interactive

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield every line; bytes that are no UTF-8 become the replacement character."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes] = asyncio.Queue()

        def read() -> None:
            chunk = b"-"
            while chunk:
                chunk = self._chunk()
                try:
                    loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                except RuntimeError:
                    return  # the chat is over

        # A daemon: a thread that waits for a line must not keep the process alive.
        threading.Thread(target=read, name="kipu-stdin", daemon=True).start()
        rest = b""
        while chunk := await chunks.get():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _text(line)
        if rest:
            yield _text(rest)

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


class EditedLines:
    """Edit lines with prompt_toolkit: history of this chat, completion of commands, Alt-Enter for another line."""

    is_interactive = True

    def __init__(self, completions: Completions) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        class Commands(Completer):
            def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
                text = document.text_before_cursor
                for word, meaning in completions(text):
                    yield Completion(word, start_position=-len(text), display_meta=meaning)

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _another_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        self._prompt: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), completer=Commands(), complete_while_typing=False, key_bindings=keys
        )

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield what is entered; Ctrl-C empties the line, Ctrl-D ends."""
        while True:
            try:
                yield await self._prompt.prompt_async("> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
