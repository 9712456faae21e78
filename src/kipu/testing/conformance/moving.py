"""Requirements 220 to 229: what a copy of a session must know beside its events."""

from __future__ import annotations

import asyncio

from kipu.errors import ConflictError, SessionNotFoundError
from kipu.ports.store import IDEMPOTENCY_RETENTION_S, Appended, Binding, EventStore, Outcome
from kipu.testing.conformance.expectation import expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject

_EXPECTED = [Outcome("z", 2, 2), Outcome("a", 4, 6), Outcome("m\u0000日", 7, 7)]


async def _fill(subject: Subject, store: EventStore) -> None:
    """Make a session with keys on some batches, and another one with keys of its own."""
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    await subject.say(store, "s1", text="one", idempotency_key="z")
    await subject.say(store, "s1", text="without a key")
    await store.append("s1", [subject.record(text) for text in "abc"], idempotency_key="a")
    await subject.say(store, "s2", text="elsewhere", idempotency_key="b")
    await subject.say(store, "s1", text="odd", idempotency_key="m\u0000日")
    await subject.say(store, "s1", text="known elsewhere", idempotency_key="b")


@requirement(220, "C4", "C22")
async def outcomes_tell_every_key_and_its_batch(subject: Subject) -> None:
    """`outcomes` gives the session's keys with the batches they stand for, in their order; no retry, refusal or other session's."""
    store = await subject.open()
    await _fill(subject, store)
    await subject.say(store, "s1", text="one", idempotency_key="z")
    with expect_error(ConflictError):
        await subject.say(store, "s1", text="refused", idempotency_key="r", expected_seq=99)
    expect_equal(await store.outcomes("s1"), _EXPECTED, what="the keys of the session")
    expect_equal(await store.outcomes("s2"), [Outcome("b", 2, 2)], what="the keys of the other session")
    await asyncio.gather(*(subject.say(store, "s2", text="twin", idempotency_key="twin") for _ in range(3)))
    expect_equal(await store.outcomes("s2"), [Outcome("b", 2, 2), Outcome("twin", 3, 3)], what="after twins at once")


@requirement(221, "C4", "C22", needs=("persistent",))
async def outcomes_survive_reopening(subject: Subject) -> None:
    """`outcomes` gives the same after the store was closed and opened."""
    store = await subject.open()
    await _fill(subject, store)
    store = await subject.reopen()
    expect_equal(await store.outcomes("s1"), _EXPECTED, what="the keys of the session")


@requirement(222, "C4")
async def a_key_ends_with_its_retention(subject: Subject) -> None:
    """After the retention a key is not among the outcomes and may be used again; then retries find its new place."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.say(store, "s1", text="old", idempotency_key="k")
    subject.clock.advance(IDEMPOTENCY_RETENTION_S - 60)
    await subject.say(store, "s1", text="younger", idempotency_key="y")
    expect_equal(await store.outcomes("s1"), [Outcome("k", 2, 2), Outcome("y", 3, 3)], what="within the retention")
    subject.clock.advance(120)
    expect_equal(await store.outcomes("s1"), [Outcome("y", 3, 3)], what="behind the retention of the first")
    again = await subject.say(store, "s1", text="new", idempotency_key="k")
    expect_equal(again, Appended("s1", 4, 4), what="the key used again")
    retry = await subject.say(store, "s1", text="new", idempotency_key="k")
    expect_equal(retry, Appended("s1", 4, 4, duplicate=True), what="its retry")
    expect_equal(await store.outcomes("s1"), [Outcome("y", 3, 3), Outcome("k", 4, 4)], what="the keys then")


@requirement(223, "C22", "A21")
async def keys_tell_where_keys_lead_now(subject: Subject) -> None:
    """`keys` gives, sorted, every key that leads to the session now, bound alone or with an append, and no other."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    expect_equal(await store.keys("s1"), [], what="the keys of a session without one")
    await store.bind("z:1", "s1")
    await store.bind("moved", "s1")
    await subject.say(store, "s1", bind=Binding("a:日"))
    with expect_error(ConflictError):
        await store.bind("a:日", "s2")
    await store.bind("moved", "s2", expected="s1")
    expect_equal(await store.keys("s1"), ["a:日", "z:1"], what="the keys of the session")
    expect_equal(await store.keys("s2"), ["moved"], what="the keys of the other session")


@requirement(224, "C22", "A21", needs=("persistent",))
async def keys_survive_reopening(subject: Subject) -> None:
    """`keys` gives the same after the store was closed and opened."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await store.bind("k:2", "s1")
    await subject.say(store, "s1", bind=Binding("k:1"))
    store = await subject.reopen()
    expect_equal(await store.keys("s1"), ["k:1", "k:2"], what="the keys of the session")


@requirement(225, "A50", "C20")
async def a_session_that_is_not_there_has_no_outcomes(subject: Subject) -> None:
    """`outcomes` and `keys` of an unknown or an erased session are SessionNotFoundError, not an empty list."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.say(store, "s1", idempotency_key="k", bind=Binding("k:1"))
    await store.erase("s1", lease=await subject.claim(store, "s1"))
    for session_id in ("s1", "ghost"):
        with expect_error(SessionNotFoundError, what=f"the outcomes of {session_id}"):
            await store.outcomes(session_id)
        with expect_error(SessionNotFoundError, what=f"the keys of {session_id}"):
            await store.keys(session_id)


@requirement(226, "C4", "C22", needs=("shared",))
async def outcomes_and_keys_hold_between_stores(subject: Subject) -> None:
    """What one store object appended and bound is among the outcomes and keys of another at the same place at once."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    expect_equal((await two.outcomes("s1"), await two.keys("s1")), ([], []), what="the other's view at first")
    for number in range(3):
        await subject.say(one, "s1", idempotency_key=f"k{number}", bind=Binding(f"b{number}"))
        keys = [Outcome(f"k{at}", at + 2, at + 2) for at in range(number + 1)]
        expect_equal(await two.outcomes("s1"), keys, what="the other's outcomes")
        expect_equal(await two.keys("s1"), [f"b{at}" for at in range(number + 1)], what="the other's keys")
