"""What has begun at a server is seen through, and who is cancelled ends (A41)."""

from __future__ import annotations

import asyncio

import pytest

from kipu.stores.under_way import UnderWay


async def test_caller_that_does_nothing_but_ask_can_be_cancelled() -> None:
    """A loop of questions, which is cancelled in the middle of one, does not begin another (A41)."""
    under_way, began, answered = UnderWay(), asyncio.Event(), asyncio.Event()
    questions: list[str] = []

    async def question() -> None:
        questions.append("?")
        began.set()
        await answered.wait()

    async def ask_for_ever() -> None:
        while True:
            await under_way.seen_through(question())

    asking = asyncio.ensure_future(ask_for_ever())
    await began.wait()
    asking.cancel()
    await asyncio.sleep(0)
    assert not asking.done()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asking, timeout=60)
    assert questions == ["?"]


async def test_cancelled_caller_gets_what_happened() -> None:
    """Work that had begun gives its outcome to its caller, who is cancelled at the next await (A41)."""
    under_way, go_on = UnderWay(), asyncio.Event()
    got: list[str] = []

    async def work() -> str:
        await go_on.wait()
        return "done"

    async def caller() -> None:
        got.append(await under_way.seen_through(work()))
        await asyncio.sleep(0)
        got.append("went on")

    calling = asyncio.ensure_future(caller())
    await asyncio.sleep(0.01)
    calling.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert got == ["done"]


async def test_who_cleans_up_after_a_cancellation_is_served() -> None:
    """A caller whose cancellation was delivered may still ask, as whoever gives a lease back does (A41)."""
    under_way = UnderWay()
    released: list[bool] = []

    async def release() -> bool:
        return True

    async def caller() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            released.append(await under_way.seen_through(release()))

    calling = asyncio.ensure_future(caller())
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert released == [True]


async def test_time_limit_that_is_over_cancels_nothing_later() -> None:
    """Who asked with a limit and got the answer all the same goes on unharmed; what somebody else asked for reaches him (A41)."""
    under_way = UnderWay()
    got: list[str] = []

    async def slowly() -> str:
        await asyncio.sleep(0.05)
        return "done"

    async def caller() -> None:
        async with asyncio.timeout(0.01):
            got.append(await under_way.seen_through(slowly()))
        await asyncio.sleep(0)
        got.append("went on")

    await caller()
    assert got == ["done", "went on"]
    got.clear()
    calling = asyncio.ensure_future(caller())
    await asyncio.sleep(0.03)  # the limit is over, and the work is not
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert got == ["done"]
