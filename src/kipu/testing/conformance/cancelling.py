"""Requirements 170 to 179: a cancelled call has happened whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kipu.ports.store import Appended, EventStore
from kipu.testing.conformance.expectation import UnmetError, expect, expect_equal
from kipu.testing.conformance.interruption import Interrupted, at_every_point
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import OWNER_A, OWNER_B, Subject, text_of, texts, whole_log

_LIMIT_STEP_S = 0.000_2


async def settle(subject: Subject, store: EventStore) -> None:
    """Wait until whatever a cancelled call left behind would have happened: other appends pass, threads get time."""
    await subject.say(store, "beside", text="settle")
    await asyncio.sleep(0.01)
    await subject.say(store, "beside", text="settle")


async def in_company(subject: Subject, store: EventStore, *, call: Coroutine[Any, Any, Appended]) -> Appended:
    """Make an append while others are under way, so that it shares their way into the store."""
    for _ in range(12):
        other = asyncio.create_task(subject.say(store, "beside", text="company"))
        other.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        call.close()
        raise
    return await call


@requirement(170, "C2")
async def a_cancelled_append_is_whole_or_nothing(subject: Subject) -> None:
    """An append cancelled at any of its awaits either raised and left nothing, for good, or returned and stands whole."""
    store = await subject.open()
    await subject.begin(store, "beside")
    await subject.begin(store, "s1")
    expected = ["begin"]

    def call(number: int) -> Coroutine[Any, Any, Appended]:
        append = store.append("s1", [subject.record(f"{number}a"), subject.record(f"{number}b")])
        return in_company(subject, store, call=append) if number % 2 else append

    async def judge(number: int, outcome: Interrupted[Appended]) -> None:
        if not outcome.cancelled:
            expected.extend((f"{number}a", f"{number}b"))
        await settle(subject, store)
        happened = "returned" if not outcome.cancelled else "raised"
        expect_equal(await texts(store, "s1"), expected, what=f"the log after an append that {happened} when cancelled")

    await at_every_point(call, judge)
    expect_equal(
        [event.seq for event in await whole_log(store, "s1")], list(range(1, len(expected) + 1)), what="the numbers"
    )


@requirement(171, "C2", "C4")
async def a_cancelled_append_can_be_retried(subject: Subject) -> None:
    """After a cancellation at any await, a retry under the same key leaves the event exactly once."""
    store = await subject.open()
    await subject.begin(store, "beside")
    await subject.begin(store, "s1")

    def call(number: int) -> Coroutine[Any, Any, Appended]:
        return in_company(
            subject, store, call=subject.say(store, "s1", text=str(number), idempotency_key=f"key {number}")
        )

    async def judge(number: int, outcome: Interrupted[Appended]) -> None:
        retry = await subject.say(store, "s1", text=str(number), idempotency_key=f"key {number}")
        expect_equal(retry.duplicate, not outcome.cancelled, what="whether the retry was a duplicate")
        expect_equal((await texts(store, "s1")).count(str(number)), 1, what="how often the event stands in the log")

    await at_every_point(call, judge)


@requirement(172, "C2")
async def a_cancelled_append_hurts_no_other(subject: Subject) -> None:
    """Cancelling one of many appends at once, at any await, neither cancels, loses nor doubles the others."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    told: list[str] = []

    async def crowd(number: int) -> Appended:
        others = [asyncio.create_task(subject.say(store, "s1", text=f"{number}.{n}")) for n in range(12)]
        crowds[number] = others
        try:
            await asyncio.sleep(0)
            return await subject.say(store, "s2", text=str(number))
        except asyncio.CancelledError:
            await asyncio.wait(others)
            raise

    crowds: dict[int, list[asyncio.Task[Appended]]] = {}

    async def judge(number: int, outcome: Interrupted[Appended]) -> None:
        for index, other in enumerate(crowds[number]):
            try:
                await asyncio.wait_for(other, 20)
            except (asyncio.CancelledError, TimeoutError) as error:
                raise UnmetError(f"another append ended with {error!r}") from error
            told.append(f"{number}.{index}")
        expect_equal(sorted(await texts(store, "s1")), sorted(["begin", *told]), what="the log of the others")
        stands = (await texts(store, "s2")).count(str(number))
        expect_equal(stands, 0 if outcome.cancelled else 1, what="how often the cancelled one's event stands")

    await at_every_point(crowd, judge)


@requirement(173, "C2")
async def a_cancellation_is_not_swallowed(subject: Subject) -> None:
    """An append that returned in spite of a cancellation lets it be delivered at the caller's next await."""
    store = await subject.open()
    await subject.begin(store, "beside")
    await subject.begin(store, "s1")

    def call(number: int) -> Coroutine[Any, Any, Appended]:
        return in_company(subject, store, call=subject.say(store, "s1", text=str(number)))

    async def judge(_: int, outcome: Interrupted[Appended]) -> None:
        if outcome.reached:
            expect(outcome.cancelled or outcome.redelivered, "the cancellation must reach the caller")

    await at_every_point(call, judge)


@requirement(177, "C2")
async def a_cancellation_outlives_a_second_append(subject: Subject) -> None:
    """It is delivered too where the caller goes on with another append at once: that one raises, or what follows it does."""
    store = await subject.open()
    await subject.begin(store, "beside")
    await subject.begin(store, "s1")

    async def twice(number: int) -> Appended:
        await subject.say(store, "s1", text=f"{number}a")
        return await subject.say(store, "s1", text=f"{number}b")

    async def judge(_: int, outcome: Interrupted[Appended]) -> None:
        if outcome.reached:
            expect(outcome.cancelled or outcome.redelivered, "the cancellation must reach the caller")

    await at_every_point(lambda number: in_company(subject, store, call=twice(number)), judge)


@requirement(174, "C2", "A39")
async def other_cancelled_calls_leave_the_store_working(subject: Subject) -> None:
    """A claim, bind, blob, index, read or list that is cancelled at any await leaves a store that works and a state that is whole."""
    store = await subject.open()
    await subject.begin(store, "beside")
    for number in range(1, 500):
        if number % 100 == 1:
            await subject.begin(store, f"s{number // 100}")
    calls: list[tuple[str, Any]] = [
        ("claim", lambda n: store.claim("s0", owner=OWNER_A, ttl_s=15)),
        ("bind", lambda n: store.bind(f"k:{n}", "s1")),
        ("put_blob", lambda n: store.put_blob("s2", str(n).encode())),
        ("read", lambda n: store.read("s3", limit=10)),
        ("head", lambda n: store.head("s3")),
        ("resolve", lambda n: store.resolve("k:1")),
    ]
    for name, call in calls:

        async def judge(_: int, outcome: Interrupted[Any], name: str = name) -> None:
            await asyncio.wait_for(settle(subject, store), 20)
            expect(
                not outcome.reached or outcome.cancelled or outcome.redelivered, f"{name} must pass the cancellation on"
            )

        await at_every_point(call, judge)
    subject.clock.advance(60)
    lease = await subject.claim(store, "s0", owner=OWNER_B)
    await store.append("s0", [subject.record("t", event_type="agent_message")], token=lease.token)
    for digest in await store.blobs("s2"):
        await store.get_blob("s2", digest)
    expect_equal(await store.verify(), [], what="damage")


@requirement(175, "C2", "C16", needs=("persistent",))
async def cancelled_appends_stay_as_they_were_told(subject: Subject) -> None:
    """What a cancelled append was found to be, whole or nothing, it is after the store was closed and opened too."""
    store = await subject.open()
    await subject.begin(store, "beside")
    await subject.begin(store, "s1")
    expected: list[str] = ["begin"]

    def call(number: int) -> Coroutine[Any, Any, Appended]:
        return in_company(subject, store, call=subject.say(store, "s1", text=str(number)))

    async def judge(number: int, outcome: Interrupted[Appended]) -> None:
        if not outcome.cancelled:
            expected.append(str(number))

    await at_every_point(call, judge)
    store = await subject.reopen()
    events = await whole_log(store, "s1")
    expect_equal([text_of(event) for event in events], expected, what="the log after reopening")


@requirement(176, "C2")
async def a_time_limit_cancels_nothing_behind_it(subject: Subject) -> None:
    """A time limit around an append that is over when the append returns cancels nothing behind its block."""
    store = await subject.open()
    names = [f"s{number}" for number in range(8)]
    for name in names:
        await subject.begin(store, name)

    async def write(name: str) -> None:
        for number in range(40):
            try:
                async with asyncio.timeout(number * _LIMIT_STEP_S):
                    await subject.say(store, name, text=str(number))
            except TimeoutError:
                pass
            try:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                raise UnmetError(f"what followed a limit of {number * _LIMIT_STEP_S:g} s was cancelled") from None

    await asyncio.gather(*map(write, names))
