"""SIGTERM, and the terminal's end: a command closes what it has open, as at Ctrl-C, and leaves the terminal as it was."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ending:
    """Cancel a command's work at the first of these signals; a second one ends the process at once."""

    def __init__(self) -> None:
        self.number: int | None = None

    async def ends(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work until it ends or is ended."""
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Any] | None = asyncio.current_task()
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:  # not where somebody chose otherwise, as nohup does
                with suppress(RuntimeError, ValueError):  # not the main thread: whoever runs it hears the signals
                    loop.add_signal_handler(number, self._end, number, task)
        return await work

    def _end(self, number: signal.Signals, task: asyncio.Task[Any] | None) -> None:
        if self.number is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.number = number
        if task is not None:
            task.cancel()
