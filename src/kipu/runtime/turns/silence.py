"""How long a model may be silent: one timer for a whole answer, not one for each of its thousand pieces."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class SilenceLimit:
    """End the block with TimeoutError when nothing is heard for `silence_s`, or when `left_s` are over (None: no such bound)."""

    def __init__(self, silence_s: float, *, left_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self._heard_at = self._loop.time()
        self._ends_at = None if left_s is None else self._heard_at + left_s
        self._scope = asyncio.timeout(None)
        self._timer = self._loop.call_at(self._due(), self._look)

    def heard(self) -> None:
        """Note that something came."""
        self._heard_at = self._loop.time()

    def _due(self) -> float:
        silent_at = self._heard_at + self._silence_s
        return silent_at if self._ends_at is None else min(silent_at, self._ends_at)

    def _look(self) -> None:
        due = self._due()
        if due <= self._loop.time():
            self._scope.reschedule(due)
        else:  # something came since the timer was set
            self._timer = self._loop.call_at(due, self._look)

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)
