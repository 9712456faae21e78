"""Sweeping by itself while a program runs: a task beside the others that never keeps anybody waiting (A55)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Self

from kipu.errors import KipuError
from kipu.manager.lifecycle.retention import Retention
from kipu.manager.lifecycle.sweeper import Sweeper
from kipu.manager.manager import SessionManager

logger = logging.getLogger(__name__)

FIRST_AFTER_S = 30.0
EVERY_S = 900.0


class LifecycleKeeper:
    """Sweep a store now and then until it is left. It never erases: that takes somebody who says `kipu gc`.

    Use it as `async with`. What one sweep could not do the next one tries again.
    """

    def __init__(
        self,
        manager: SessionManager,
        retention: Retention,
        *,
        first_after_s: float = FIRST_AFTER_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._sweeper = Sweeper(manager, retention, erases=False)
        self._first_after_s = first_after_s
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self.swept = asyncio.Event()  # set with every sweep that has ended

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="kipu-lifecycle")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        await asyncio.sleep(self._first_after_s)
        while True:
            try:
                await self._sweeper.sweep()
            except KipuError as error:
                logger.warning("sessions were not looked over: %s", error)
            self.swept.set()
            await asyncio.sleep(self._every_s)
