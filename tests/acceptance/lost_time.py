"""How long the machine stood still: a bound on how soon something happens is about the time in which anything could."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TICK_S = 0.05


@asynccontextmanager
async def counting_lost_time() -> AsyncIterator[Callable[[], float]]:
    """Give what says for how many seconds of the block this process was not let run, because nothing was or all was busy."""
    late_s, due_s = 0.0, time.monotonic()

    async def tick() -> None:
        nonlocal late_s, due_s
        while True:
            due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            late_s += time.monotonic() - due_s

    ticking = asyncio.ensure_future(tick())
    try:
        yield lambda: late_s + max(0.0, time.monotonic() - due_s)
    finally:
        ticking.cancel()
