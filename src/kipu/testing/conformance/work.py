"""Requirements 100 to 109: which sessions want a worker."""

from __future__ import annotations

from typing import Any

from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore
from kipu.testing.conformance.expectation import expect_equal
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject


async def runnable_ids(subject: Subject, store: EventStore, *, limit: int = 100) -> list[str]:
    """Return the ids that `runnable` gives at the clock's time."""
    return [head.session_id for head in await store.runnable(now=subject.clock.iso(), limit=limit)]


async def arrive(subject: Subject, store: EventStore, *, session_id: str, **fields: Any) -> None:
    """Append a message that waits."""
    await subject.say(store, session_id, head=HeadPatch(insert_at={"waiting": [0]}, set=fields))


@requirement(100, "C5", "A39")
async def a_waiting_message_is_work(subject: Subject) -> None:
    """A session with a waiting message is runnable, one without is not, and consuming the message ends it."""
    store = await subject.open()
    await subject.begin(store, "idle")
    await subject.begin(store, "s1")
    expect_equal(await runnable_ids(subject, store), [], what="before anything arrived")
    await arrive(subject, store, session_id="s1")
    expect_equal(await runnable_ids(subject, store), ["s1"], what="with a waiting message")
    await subject.say(store, "s1", head=HeadPatch(discard={"waiting": [2]}))
    expect_equal(await runnable_ids(subject, store), [], what="after it was consumed")


@requirement(101, "C14", "A39")
async def a_leased_session_is_nobody_elses_work(subject: Subject) -> None:
    """While its lease is live a session is not runnable; after release, expiry or the owner's death it is."""
    store = await subject.open()
    for session_id in ("s1", "s2", "s3"):
        await subject.begin(store, session_id)
        await arrive(subject, store, session_id=session_id)
    released = await subject.claim(store, "s1", owner="h/b/1/1/released", ttl_s=3600)
    await subject.claim(store, "s2", owner="h/b/2/2/expires", ttl_s=15)
    await subject.claim(store, "s3", owner="h/b/3/3/dies", ttl_s=3600)
    expect_equal(await runnable_ids(subject, store), [], what="while all are held")
    await store.release(released)
    expect_equal(await runnable_ids(subject, store), ["s1"], what="after a release")
    subject.clock.advance(15)
    expect_equal(sorted(await runnable_ids(subject, store)), ["s1", "s2"], what="after an expiry")
    subject.liveness.kill("h/b/3/3/dies")
    expect_equal(sorted(await runnable_ids(subject, store)), ["s1", "s2", "s3"], what="after a death")


@requirement(102, "C12")
async def quiet_time_delays_work(subject: Subject) -> None:
    """Work with `not_before` is runnable only from then on."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await arrive(subject, store, session_id="s1", not_before=subject.clock.iso(10))
    subject.clock.advance(9.9)
    expect_equal(await runnable_ids(subject, store), [], what="before the time")
    subject.clock.advance(0.1)
    expect_equal(await runnable_ids(subject, store), ["s1"], what="at the time")


@requirement(103, "A41", "A39")
async def the_longest_due_come_first(subject: Subject) -> None:
    """Runnable sessions come by the time they became due, those due at once first, and at most `limit` of them."""
    store = await subject.open()
    for session_id, offset in (("late", 30), ("early", 10), ("middle", 20), ("never", 5000)):
        await subject.begin(store, session_id)
        await arrive(subject, store, session_id=session_id, not_before=subject.clock.iso(offset))
    for session_id in ("now", "a-moment-later"):
        await subject.begin(store, session_id)
        await arrive(subject, store, session_id=session_id)
        subject.clock.advance(1)
    subject.clock.advance(60)
    order = ["now", "a-moment-later", "early", "middle", "late"]
    expect_equal(await runnable_ids(subject, store), order, what="the order")
    expect_equal(await runnable_ids(subject, store, limit=3), order[:3], what="the first three")


@requirement(104, "A71", "C13", "C14", "C15")
async def open_turns_are_work_by_their_state(subject: Subject) -> None:
    """An open turn is work when its worker is gone; parked it is work only when decided, expired or asked to stop."""
    store = await subject.open()
    cases: dict[str, tuple[dict[str, Any], bool]] = {
        "open": ({"open_turn": "t"}, True),
        "parked": ({"open_turn": "t", "parked": True}, False),
        "decided": ({"open_turn": "t", "parked": True, "decided": True}, True),
        "expires": ({"open_turn": "t", "parked": True, "not_before": subject.clock.iso(60)}, False),
        "expired": ({"open_turn": "t", "parked": True, "not_before": subject.clock.iso(-1)}, True),
        "stopped": ({"open_turn": "t", "parked": True, "stop": "t"}, True),
        "other": ({"open_turn": "t", "parked": True, "stop": "an older turn"}, False),
        "none": ({}, False),
    }
    for session_id, (fields, _) in cases.items():
        await subject.begin(store, session_id)
        await subject.say(store, session_id, head=HeadPatch(set=fields))
    expected = {session_id for session_id, (_, due) in cases.items() if due}
    expect_equal(set(await runnable_ids(subject, store)), expected, what="runnable sessions")


@requirement(105, "C5", "B2", needs=("persistent",))
async def work_survives_reopening(subject: Subject) -> None:
    """What waited before the store was closed is runnable after it is opened."""
    store = await subject.open()
    for session_id in ("idle", "s1"):
        await subject.begin(store, session_id)
    await arrive(subject, store, session_id="s1")
    store = await subject.reopen()
    expect_equal(await runnable_ids(subject, store), ["s1"], what="runnable sessions")


@requirement(106, "A41")
async def held_sessions_do_not_hide_others(subject: Subject) -> None:
    """Sessions whose lease is live take no place among the `limit`."""
    store = await subject.open()
    for number in range(12):
        await subject.begin(store, f"s{number:02}")
        await arrive(subject, store, session_id=f"s{number:02}", not_before=subject.clock.iso(-100 + number))
    for number in range(10):
        await subject.claim(store, f"s{number:02}", ttl_s=3600)
    expect_equal(await runnable_ids(subject, store, limit=2), ["s10", "s11"], what="the two that nobody holds")


@requirement(107, "C12", "C14")
async def quiet_time_is_for_waiting_messages(subject: Subject) -> None:
    """Quiet time delays waiting messages while no turn is open, and never an open turn."""
    store = await subject.open()
    quiet = subject.clock.iso(10)
    cases: dict[str, dict[str, Any]] = {
        "waits": {},
        "open": {"open_turn": "t"},
        "parked": {"open_turn": "t", "parked": True},
        "decided": {"open_turn": "t", "parked": True, "decided": True},
        "later": {"not_before": subject.clock.iso(20)},
    }
    for session_id, fields in cases.items():
        await subject.begin(store, session_id)
        await arrive(subject, store, session_id=session_id, quiet_until=quiet, **fields)
    expect_equal(set(await runnable_ids(subject, store)), {"open", "decided"}, what="during the quiet time")
    subject.clock.advance(10.1)
    expect_equal(set(await runnable_ids(subject, store)), {"open", "decided", "waits"}, what="after the quiet time")
    subject.clock.advance(10)
    expect_equal(
        set(await runnable_ids(subject, store)), {"open", "decided", "waits", "later"}, what="after the other time"
    )
