"""The input line of a terminal, with prompt_toolkit: it stays in its place while the chat prints above it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style

from kipu.cli.chat.keyboard import Keyboard
from kipu.cli.chat.lines import CTRL_C_AGAIN

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent

    from kipu.cli.chat.lines import Desk

ESCAPE_WAIT_S = 0.2  # what comes within it belongs to a key of several bytes, such as Alt-Enter
AGAIN_S = 2.0  # a second Ctrl-C within it ends
TICK_S = 0.12
REDRAW_S = 0.04  # at most so often, however fast an answer streams
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "thought": "italic ansibrightblack",
        "call": "ansicyan",
        "output": "ansibrightblack",
        "question": "bold ansiyellow",
        "options": "ansiyellow",
        "status": "ansibrightblack",
    }
)


class EditedLines:
    """Edit lines: history over chats, completion, Alt-Enter or a backslash for another line, Esc and Ctrl-C to interrupt."""

    is_interactive = True
    is_live = True

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pressed_s = -AGAIN_S
        self._pending: list[Callable[[], None]] = []
        self._drawing: asyncio.Task[None] | None = None
        self._prefilled = ""
        self._is_over = False
        self._keyboard = Keyboard(sys.stdin)
        self._prompt: PromptSession[str] = PromptSession(
            input=self._keyboard,
            history=_history(desk.history, desk.kept),
            completer=_DeskCompleter(desk),
            complete_while_typing=Condition(self._completes_while_typing),
            key_bindings=self._keys(),
            multiline=True,
            style=_STYLE,
            prompt_continuation="… ",
            enable_open_in_editor=True,
            reserve_space_for_menu=4,
            complete_in_thread=True,
        )
        self._prompt.app.timeoutlen = ESCAPE_WAIT_S
        self._prompt.app.ttimeoutlen = ESCAPE_WAIT_S / 2
        self._prompt.app.min_redraw_interval = REDRAW_S

    async def lines(self) -> AsyncGenerator[str, None]:
        """Yield what is entered, until Ctrl-D or the second Ctrl-C."""
        ticking = asyncio.ensure_future(self._tick())
        self._desk.attach(self)
        try:
            # Whatever else writes (a warning of a library) is put above the line, too.
            with patch_stdout(raw=True):
                while not self._is_over:
                    default, self._prefilled = self._prefilled, ""
                    try:
                        yield await self._prompt.prompt_async(self._message, default=default, handle_sigint=False)
                    except KeyboardInterrupt:
                        continue
                    except EOFError:
                        return
        finally:
            self._desk.attach(None)
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            await self.settle()

    def held(self) -> AbstractContextManager[None]:
        """Keep what is pressed in the block, whether or not the input line is there."""
        return self._keyboard.held()

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Give the terminal to another program in the block."""
        async with in_terminal():
            with self._keyboard.lent():
                yield

    # ---- for the screen --------------------------------------------------------------------------------------------

    def above(self, draw: Callable[[], None]) -> None:
        """Run what prints, with the line out of its way; in the order of the calls, many at once where they come at once."""
        if not self._prompt.app.is_running and not self._pending:
            draw()
            return
        self._pending.append(draw)
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.ensure_future(self._draw())

    async def settle(self) -> None:
        """Return when everything is printed."""
        if self._drawing is not None:
            await asyncio.gather(self._drawing, return_exceptions=True)
        self._run_pending()

    def redraw(self) -> None:
        """Draw the live area anew."""
        if self._prompt.app.is_running:
            self._prompt.app.invalidate()

    def prefill(self, text: str) -> None:
        """Put text into the line for a person to change."""
        if self._prompt.app.is_running:
            self._prompt.default_buffer.document = Document(text)
        else:
            self._prefilled = text

    def end(self) -> None:
        """Yield no more lines."""
        self._is_over = True
        if self._prompt.app.is_running:
            self._prompt.app.exit(exception=EOFError())

    async def _draw(self) -> None:
        with self._keyboard.printing():
            while self._pending:
                async with in_terminal():
                    self._run_pending()

    def _run_pending(self) -> None:
        pending, self._pending = self._pending, []
        for draw in pending:
            draw()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._desk.live is not None and self._desk.live.moves:
                self.redraw()

    def _message(self) -> StyleAndTextTuples:
        prompt: StyleAndTextTuples = [("class:prompt", "> ")]
        app = self._prompt.app
        if self._desk.live is None or app.is_done:
            return prompt
        size = app.output.get_size()
        lines = self._desk.live.lines(width=size.columns, height=size.rows)
        return [*((style, line + "\n") for style, line in lines), *prompt]

    # ---- keys ------------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys, written = KeyBindings(), ~is_searching  # a search of the history has its own Enter and Ctrl-C

        @keys.add("enter", filter=written)
        @keys.add("c-j", filter=written)  # Enter as the terminal made it, pressed before the line was there
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _another_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("escape")
        def _escape(event: KeyPressEvent) -> None:
            if event.current_buffer.complete_state is not None:
                event.current_buffer.cancel_completion()
            else:
                self._desk.interrupt()

        @keys.add("c-c", filter=written)
        def _ctrl_c(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._press()

        return keys

    def _press(self) -> None:
        now_s = time.monotonic()
        if now_s - self._pressed_s < AGAIN_S:
            self.end()
            return
        self._pressed_s = now_s
        if not self._desk.interrupt():
            self._desk.hint(CTRL_C_AGAIN)

    def _completes_while_typing(self) -> bool:
        text = self._prompt.default_buffer.document.text_before_cursor
        return (text.startswith("/") and " " not in text) or text.rpartition(" ")[2].startswith("@")


class _DeskCompleter(Completer):
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        for word, back, meaning in self._desk.complete(document.text_before_cursor):
            yield Completion(word, start_position=-back, display_meta=meaning)


class _KeptHistory(FileHistory):
    """Lines that were entered, in a file, without the secrets that were pasted into them."""

    def __init__(self, path: Path, kept: Callable[[str], str]) -> None:
        super().__init__(str(path))
        self._kept = kept

    def store_string(self, string: str) -> None:
        super().store_string(self._kept(string))


def _history(path: Path | None, kept: Callable[[str], str]) -> History:
    """Return what was entered in earlier chats, in a file that only its owner reads; else of this chat alone."""
    if path is None:
        return InMemoryHistory()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return _KeptHistory(path, kept)
    return InMemoryHistory()
