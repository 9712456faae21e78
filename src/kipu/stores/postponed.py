"""A cancellation that came while something was seen through: its task is told of it afterwards, unless it was taken back meanwhile."""

from __future__ import annotations

import asyncio


async def cancellations() -> int:
    """Return how many cancellations of the current task stand that it was told of; one that is on its way is told here.

    Whoever began something before that could take the one on its way for one that was there, and it would never come.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return 0
    await asyncio.sleep(0)
    return task.cancelling()


def cancel_again(standing: int) -> None:
    """Cancel the current task at its next await, if by then more cancellations stand than the `standing` of before.

    `asyncio.timeout` takes its own back where its block ends. To cancel here and now would leave a mark in the task that this does
    not remove before Python 3.13: whatever the task awaited after its block would be cancelled, and nobody had asked for that.
    """
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().call_soon(_cancel, task, standing)


def _cancel(task: asyncio.Task[object], standing: int) -> None:
    if not task.done() and task.cancelling() > standing:
        task.uncancel()
        task.cancel()
