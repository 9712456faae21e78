"""Work at a server that is seen through once it has begun: half a question would leave its answer to somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kipu.stores.postponed import cancel_again, cancellations

T = TypeVar("T")


class UnderWay:
    """What a store is in the middle of."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def seen_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work gives. A cancelled caller gets it too where it happened, and is cancelled at its next await.

        Which may be here again: nothing begins before, or who does nothing but ask could not be cancelled at all.
        """
        try:
            standing = await cancellations()
        except asyncio.CancelledError:
            work.close()
            raise
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                cancelled = error
            except Exception:  # noqa: BLE001 - it is raised below
                break
        if cancelled is None:
            return task.result()
        if task.exception() is not None:
            raise cancelled
        cancel_again(standing)
        return task.result()

    async def ended(self, *, timeout_s: float) -> None:
        """Return when nothing is under way any more, or the time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
