"""The keys of a terminal: what is pressed while no input line is there waits as it was pressed.

A terminal that edits lines itself, as it does outside an input line, echoes keys, makes a signal of Ctrl-C, and forgets Ctrl-D.
"""

from __future__ import annotations

import asyncio
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TextIO

from prompt_toolkit.input.vt100 import Vt100Input

_INPUT_FLAGS, _LOCAL_FLAGS, _CONTROL_CHARACTERS = 0, 3, 6  # where `termios.tcgetattr` has them


class Keyboard(Vt100Input):
    """Read keys from a terminal for an input line, above which the chat prints."""

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self._printer: asyncio.Task[None] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep what is pressed in the block, between input lines, for the next one. Ctrl-C is a signal: no key would be read."""
        before = termios.tcgetattr(self.fileno())
        held = termios.tcgetattr(self.fileno())
        held[_INPUT_FLAGS] &= ~termios.ICRNL
        held[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        held[_CONTROL_CHARACTERS][termios.VMIN] = 1
        termios.tcsetattr(self.fileno(), termios.TCSANOW, held)
        try:
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self.fileno(), termios.TCSANOW, before)

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Have what this task prints above the input line leave the keys as they are."""
        self._printer = asyncio.current_task()
        try:
            yield
        finally:
            self._printer = None

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Let the terminal edit lines, for a program that reads them; not for what only prints."""
        is_printing = self._printer is not None and asyncio.current_task() is self._printer
        return nullcontext() if is_printing else self.lent()

    def lent(self) -> AbstractContextManager[None]:
        """Let the terminal edit lines in the block."""
        return super().cooked_mode()
