"""Requirements 20 to 29: one key, one outcome."""

from __future__ import annotations

import asyncio

from kipu.errors import ConflictError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, Binding
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import OWNER_B, Subject, texts, unchanged

KEY = "tenant|telegram|account|message 42|0"


@requirement(20, "C2", "C4")
async def a_retry_returns_the_first_outcome(subject: Subject) -> None:
    """A second append under a known key returns the first outcome, marked, and appends nothing."""
    store = await subject.open()
    await subject.begin(store, "s1")
    batch = [subject.record("a"), subject.record("b")]
    first = await store.append("s1", batch, idempotency_key=KEY)
    expect_equal(first, Appended("s1", 2, 3), what="the first outcome")
    await subject.say(store, "s1", text="later")
    async with unchanged(store, "s1"):
        again = await store.append("s1", batch, idempotency_key=KEY)
    expect_equal(again, Appended("s1", 2, 3, duplicate=True), what="the retry's outcome")


@requirement(21, "C4")
async def a_key_holds_in_the_whole_store(subject: Subject) -> None:
    """A retry into another session returns where the first stands; the other session stays as it is."""
    store = await subject.open()
    await subject.begin(store, "old")
    await subject.begin(store, "new")
    await subject.say(store, "old", text="m", idempotency_key=KEY)
    async with unchanged(store, "new"):
        outcome = await subject.say(store, "new", text="m", idempotency_key=KEY)
    expect_equal(outcome, Appended("old", 2, 2, duplicate=True), what="the outcome")


@requirement(22, "C4", "C2", needs=("persistent",))
async def a_key_is_known_after_reopening(subject: Subject) -> None:
    """A key that was used before the store was closed is known when it is opened again."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.say(store, "s1", text="m", idempotency_key=KEY)
    store = await subject.reopen()
    outcome = await subject.say(store, "s1", text="m", idempotency_key=KEY)
    expect_equal(outcome, Appended("s1", 2, 2, duplicate=True), what="the outcome")
    expect_equal(await texts(store, "s1"), ["begin", "m"], what="the log")


@requirement(23, "C2")
async def a_refusal_does_not_use_the_key_up(subject: Subject) -> None:
    """After a refused append, the same key may be used with success."""
    store = await subject.open()
    await subject.begin(store, "s1")
    with expect_error(ConflictError):
        await subject.say(store, "s1", text="m", idempotency_key=KEY, expected_seq=9)
    outcome = await subject.say(store, "s1", text="m", idempotency_key=KEY)
    expect_equal(outcome, Appended("s1", 2, 2), what="the outcome after the refusal")


@requirement(24, "C2", "C4")
async def a_known_key_comes_before_every_other_check(subject: Subject) -> None:
    """A retry returns the first outcome though expected_seq, the token or the binding would now be refused."""
    store = await subject.open()
    began = subject.record(event_type="session_init")
    await store.append("s1", [began], head=subject.first_patch(), bind=Binding("k:1"), idempotency_key="init")
    await subject.say(store, "s1", text="m", idempotency_key=KEY, expected_seq=1)
    lease = await subject.claim(store, "s1")
    turn = subject.record("t", event_type="agent_message")
    await store.append("s1", [turn], token=lease.token, idempotency_key="turn")
    subject.clock.advance(60)
    await subject.claim(store, "s1", owner=OWNER_B)
    async with unchanged(store, "s1"):
        again = await store.append(
            "s1", [began], head=subject.first_patch(), bind=Binding("k:1"), idempotency_key="init"
        )
        expect_equal(again, Appended("s1", 1, 1, duplicate=True), what="the retried beginning")
        said = await subject.say(store, "s1", text="m", idempotency_key=KEY, expected_seq=1)
        expect_equal(said, Appended("s1", 2, 2, duplicate=True), what="the retry with an old expected_seq")
        told = await store.append("s1", [turn], token=lease.token, idempotency_key="turn")
        expect_equal(told, Appended("s1", 3, 3, duplicate=True), what="the retry with an old token")


@requirement(25, "C2", "C4")
async def one_of_many_at_once_appends(subject: Subject) -> None:
    """Of many appends at once under one key exactly one appends, and all return the same place."""
    store = await subject.open()
    await subject.begin(store, "s1")
    calls = [subject.say(store, "s1", text=f"m{n}", idempotency_key=KEY) for n in range(20)]
    outcomes = await asyncio.gather(*calls)
    expect_equal(sum(not outcome.duplicate for outcome in outcomes), 1, what="how many appended")
    expect_equal({(o.session_id, o.first_seq, o.last_seq) for o in outcomes}, {("s1", 2, 2)}, what="the places")
    expect_equal(len(await texts(store, "s1")), 2, what="events in the log")


@requirement(26, "C2", "C4", needs=("shared",))
async def a_key_holds_between_stores(subject: Subject) -> None:
    """A key that one store object has used is known to another one at the same place at once."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    await subject.say(one, "s1", text="m", idempotency_key=KEY)
    outcome = await subject.say(two, "s1", text="m", idempotency_key=KEY)
    expect_equal(outcome, Appended("s1", 2, 2, duplicate=True), what="the other's outcome")


@requirement(27, "C2")
async def keys_differ_in_every_byte(subject: Subject) -> None:
    """Keys that look alike (case, Unicode form, spaces, length) are different keys."""
    store = await subject.open()
    await subject.begin(store, "s1")
    keys = ["a", "A", "a ", " a", "é", "e\u0301", "a%", "a_", "x" * 1000, "x" * 1001, "a\u0000", "a|b", "a/b"]
    for key in keys:
        outcome = await subject.say(store, "s1", text="m", idempotency_key=key)
        expect(not outcome.duplicate, f"the key {key[:20]!r} must be new")
    expect_equal(len(await texts(store, "s1")), len(keys) + 1, what="events in the log")


@requirement(28, "C2")
async def a_duplicate_moves_no_head_and_no_key(subject: Subject) -> None:
    """The patch and the binding of a retry are not applied again."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    await subject.say(
        store, "s1", text="m", idempotency_key=KEY, head=HeadPatch(add={"token_count": 5}), bind=Binding("k:1")
    )
    await store.bind("k:1", "s2", expected="s1")
    async with unchanged(store, "s1"):
        await subject.say(
            store, "s1", text="m", idempotency_key=KEY, head=HeadPatch(add={"token_count": 5}), bind=Binding("k:1")
        )
    expect_equal(await store.resolve("k:1"), "s2", what="where the key leads")
