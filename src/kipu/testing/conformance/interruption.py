"""Drive a call by hand and cancel it at any one of the points where it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Moment(StrEnum):
    """When, at a point where a call waits, the cancellation comes."""

    WAITING = "while it waits"
    WAKING = "when what it waited for is done and it has not gone on yet"


@dataclass(frozen=True, slots=True)
class Interrupted(Generic[T]):
    """How a cancelled call ended. `reached` is False when it ended before the chosen point."""

    reached: bool
    returned: T | None
    cancelled: bool
    redelivered: bool


class _CancelAt(Generic[T]):
    """An awaitable that passes everything through and cancels the running task at its n-th wait."""

    def __init__(self, call: Coroutine[Any, Any, T], *, point: int, moment: Moment) -> None:
        self._call = call
        self._point = point
        self._moment = moment
        self.reached = False

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._call.__await__()
        waits = 0
        waited_for: Any = next_step(steps, None)
        while not isinstance(waited_for, StopIteration):
            waits += 1
            now = waits == self._point
            if now and self._moment is Moment.WAITING:
                self._cancel()
            elif now:
                self._cancel_when_done(waited_for)
            error: BaseException | None = None
            try:
                yield waited_for
            except BaseException as raised:  # noqa: BLE001 - it is thrown on into the call
                error = raised
            waited_for = next_step(steps, error)
        result: T = waited_for.value
        return result

    def _cancel(self) -> None:
        self.reached = True
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().call_soon(task.cancel)

    def _cancel_when_done(self, waited_for: Any) -> None:
        task = asyncio.current_task()
        if waited_for is None or task is None:  # a bare `sleep(0)` goes on by itself: cancel before it does
            self._cancel()
            return
        self.reached = True
        # Callbacks run in the order they were added: this one before the task's own, which wakes it.
        waited_for.add_done_callback(lambda _: task.cancel())


def next_step(steps: Generator[Any, Any, Any], error: BaseException | None) -> Any:
    """Return what the call waits for next, or the StopIteration that carries its result."""
    try:
        return steps.send(None) if error is None else steps.throw(error)
    except StopIteration as stop:
        return stop


async def interrupt(call: Coroutine[Any, Any, T], *, point: int, moment: Moment) -> Interrupted[T]:
    """Run `call` in a task, cancel it at its `point`-th wait, and return how it ended.

    `redelivered` says whether a call that returned in spite of the cancellation was cancelled at the next await.
    """
    driven = _CancelAt(call, point=point, moment=moment)
    outcome: dict[str, Any] = {}

    async def body() -> None:
        outcome["returned"] = await driven
        for _ in range(5):
            await asyncio.sleep(0)

    task = asyncio.ensure_future(body())
    done, _ = await asyncio.wait([task], timeout=30)
    if not done:
        task.cancel()
        raise TimeoutError
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    came_back = "returned" in outcome
    return Interrupted(driven.reached, outcome.get("returned"), task.cancelled() and not came_back, task.cancelled())


async def at_every_point(
    call: Callable[[int], Coroutine[Any, Any, T]], judge: Callable[[int, Interrupted[T]], Awaitable[None]]
) -> int:
    """Cancel a fresh call at its first, second, … wait, at both moments, judge each, and return how many points there were."""
    number, points = 0, 0
    for moment in Moment:
        for point in range(1, 200):
            number += 1
            outcome = await interrupt(call(number), point=point, moment=moment)
            await judge(number, outcome)
            if not outcome.reached:
                break
            points += 1
    return points
