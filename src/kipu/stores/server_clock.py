"""The server's time: what all machines agree on, whatever their own clocks say (facts.md: database clock only)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

LOOK_EVERY_S = 30.0


class ServerClock:
    """Tell the server's time: as it was at the last look, plus what has passed since by a clock that nobody can set."""

    def __init__(self, look: Callable[[], Awaitable[int]]) -> None:
        self._look = look
        self._known_us = 0
        self._at_s = 0.0
        self._looking = asyncio.Lock()

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        return self._known_us + int((time.monotonic() - self._at_s) * 1_000_000)

    async def look(self, *, newest: bool = False) -> None:
        """Ask the server, where that was long ago or, with `newest`, now."""
        async with self._looking:
            if not newest and self._known_us and time.monotonic() - self._at_s < LOOK_EVERY_S:
                return
            asked_s = time.monotonic()
            self._known_us = await self._look()
            # Half of the way there and back is as good as it gets.
            self._at_s = (asked_s + time.monotonic()) / 2
