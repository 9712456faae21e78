"""Where a chat's lines come from: an editor on a terminal, or a pipe."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

Completions = Callable[[str], list[tuple[str, str]]]


class LineSource(Protocol):
    """Give one line after another, until there are no more."""

    is_interactive: bool

    def __aiter__(self) -> AsyncIterator[str]:
        """Return the lines."""
        ...


def line_source(completions: Completions) -> LineSource:
    """Return an editor where a person types, else the lines of stdin."""
    if sys.stdin.isatty() and sys.stdout.isatty():
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
        lines: asyncio.Queue[bytes] = asyncio.Queue()

        def read() -> None:
            try:
                for line in self._file:
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, b"")
            except (RuntimeError, OSError, ValueError):
                return  # the chat is over, or nobody writes any more

        # A daemon: a thread that waits for a line must not keep the process alive.
        threading.Thread(target=read, name="kipu-stdin", daemon=True).start()
        while line := await lines.get():
            yield line.decode("utf-8", "replace").rstrip("\r\n")


class EditedLines:
    """Edit lines with prompt_toolkit: history of this chat, completion of commands, Alt-Enter for another line."""

    is_interactive = True

    def __init__(self, completions: Completions) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        class Commands(Completer):
            def get_completions(self, document: Document, complete_event: CompleteEvent):  # type: ignore[no-untyped-def]
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
