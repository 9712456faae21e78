"""Requirements 195 to 199: no clock orders anything."""

from __future__ import annotations

from kipu.errors import ConflictError, LeaseLostError
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import OWNER_A, OWNER_B, TURN_TYPE, Subject, texts, unchanged
from kipu.testing.fakes import SkewedClock


@requirement(195, "C1", needs=("shared",))
async def skewed_clocks_change_no_order(subject: Subject) -> None:
    """Two store objects with clocks 5 s apart number events in the order of their appends, and see the same conflicts."""
    ahead = await subject.open(clock=SkewedClock(subject.clock, offset_s=5))
    behind = await subject.open()
    await subject.begin(ahead, "s1")
    expected = ["begin"]
    for number in range(10):
        store = (ahead, behind)[number % 2]
        skew_s = 5 if store is ahead else 0
        record = subject.record(str(number), timestamp=subject.clock.iso(skew_s))
        outcome = await store.append("s1", [record], expected_seq=number + 1)
        expect_equal(outcome.first_seq, number + 2, what="the number")
        expected.append(str(number))
        async with unchanged(store, "s1"):
            with expect_error(ConflictError, what="the other host's decision on the same state"):
                await (behind if store is ahead else ahead).append("s1", [record], expected_seq=number + 1)
    for store in (ahead, behind):
        expect_equal(await texts(store, "s1"), expected, what="the log")


@requirement(196, "C1", "C3", needs=("shared",))
async def skewed_clocks_fence_the_same(subject: Subject) -> None:
    """With clocks 5 s apart a lease that one host ends early still lets no two tokens append."""
    ahead = await subject.open(clock=SkewedClock(subject.clock, offset_s=5))
    behind = await subject.open()
    await subject.begin(ahead, "s1")
    old = await subject.claim(behind, "s1", ttl_s=3)
    new = await ahead.claim("s1", owner=OWNER_B, ttl_s=3)
    if new is None:
        expect_equal((await behind.renew(old)).token, old.token, what="the token that nobody replaced")
        return
    async with unchanged(behind, "s1"):
        with expect_error(LeaseLostError, what="the first holder, whose own clock says it still holds"):
            await behind.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)
        with expect_error(LeaseLostError, what="its renewal"):
            await behind.renew(old)
    await ahead.append("s1", [subject.record(event_type=TURN_TYPE)], token=new.token)


@requirement(197, "C1", "C3")
async def a_clock_that_jumps_back_gives_no_token_twice(subject: Subject) -> None:
    """After the clock went back an hour, appends get the next numbers, claims the next tokens, and old tokens are refused."""
    store = await subject.open()
    await subject.begin(store, "s1")
    old = await subject.claim(store, "s1", ttl_s=1)
    subject.clock.advance(10)
    await subject.say(store, "s1", text="before")
    await store.release(old)
    subject.clock.advance(-3600)
    new = await subject.claim(store, "s1", owner=OWNER_A)
    expect(new.token > old.token, f"the new token must be above {old.token}, got {new.token}")
    with expect_error(LeaseLostError, what="the old token"):
        await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)
    await store.append("s1", [subject.record("after", event_type=TURN_TYPE)], token=new.token)
    expect_equal(await texts(store, "s1"), ["begin", "before", "after"], what="the log")


@requirement(198, "C1")
async def odd_timestamps_order_nothing(subject: Subject) -> None:
    """Events with times before, after and far from each other are read, forwards and backwards, in the order of their appends."""
    store = await subject.open()
    await subject.begin(store, "s1")
    times = [
        "9999-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00.000000Z",
        "2030-01-01T00:00:00.000000Z",
        subject.clock.iso(),
    ]
    for number, time in enumerate(times):
        await store.append("s1", [subject.record(str(number), timestamp=time)])
    forwards = await store.read("s1", after=1)
    expect_equal([event.record.timestamp for event in forwards], times, what="the times as they were given")
    expect_equal((await store.read("s1", after=1, backwards=True))[::-1], forwards, what="the log read backwards")
