"""Ctrl-C as a signal: it ends the running turn and not the chat, and between lines the chat. An input line has it as a key."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self


class CtrlC:
    """Let Ctrl-C end the running turn; a second one ends the chat, whatever it waits for.

    A plain handler, and not the loop's: one that the loop delivers later would be lost when the turn ends meanwhile.
    """

    def __init__(self, interrupt: Callable[[], bool], *, hint: Callable[[], None] | None) -> None:
        """Take what interrupts a turn, if one runs, and where lines come also during turns what to do else at the first one."""
        self._interrupt = interrupt
        self._hint = hint
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._before: Any = None
        self._is_set = False
        self._is_idle = False
        self.pressed = 0

    def _press(self, *_signal: object) -> None:
        self.pressed += 1
        self._loop.call_soon_threadsafe(self._stop, self.pressed)

    def _stop(self, pressed: int) -> None:
        is_asked_for_line = self._is_idle and self._hint is None
        if pressed == 1 and not is_asked_for_line and self._interrupt():
            return
        if pressed == 1 and self._hint is not None:
            self._hint()
        elif self._task is not None:
            self._task.cancel()

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Wait for a line in here: Ctrl-C ends a chat whose lines come one by one."""
        self._is_idle = True
        try:
            yield
        finally:
            self._is_idle = False
            if self._hint is not None:
                self.pressed = 0  # of an earlier line

    def __enter__(self) -> Self:
        with suppress(ValueError):  # not the main thread: nobody presses keys here
            self._before = signal.signal(signal.SIGINT, self._press)
            self._is_set = True
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, self._before)
