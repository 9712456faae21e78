"""Requirements 200 to 209: what was acknowledged stays."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable

from kipu.errors import StoreClosedError
from kipu.ports.store import EventStore, SessionQuery
from kipu.testing.conformance.append import odd_bodies
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.following import end, take
from kipu.testing.conformance.jobs import append_until_killed, append_when_told
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.second_process import ended, start
from kipu.testing.conformance.subject import Subject, state_of, text_of, whole_log


async def everything(store: EventStore) -> dict[str, object]:
    """Return all that can be seen of a store's sessions."""
    heads = (await store.list(SessionQuery(limit=1000))).items
    return {head.session_id: await state_of(store, head.session_id) for head in heads}


@requirement(200, "B2", "C2", needs=("persistent",))
async def everything_survives_reopening(subject: Subject) -> None:
    """Log, head, leases and blobs of every session are the same after the store was closed and opened, again and again."""
    store = await subject.open()
    for number in range(6):
        session_id = f"s{number}"
        await subject.begin(store, session_id, title=f"title {number}", base_seq=number * 10)
        for body in odd_bodies():
            await store.append(session_id, [subject.record(body=body, turn_id="t", principal="p")])
        await store.put_blob(session_id, str(number).encode())
        if number % 2:
            await subject.claim(store, session_id)
    before = await everything(store)
    for _ in range(2):
        store = await subject.reopen()
        expect_equal(await everything(store), before, what="the store's sessions")
    expect_equal((await subject.say(store, "s1")).first_seq, 10 + len(odd_bodies()) + 2, what="the next number")


@requirement(201, "C16", "C2", needs=("multi_process",))
async def a_killed_process_loses_nothing(subject: Subject) -> None:
    """After SIGKILL in the middle of appending, the log opens, has every acknowledged event once at its seq, and goes on."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for round_number in range(2):
        process = await start(append_until_killed, subject.place, name=str(round_number), session_id="s1", size=10_000)
        expect(process.stdout is not None, "the pipe of the other process")
        for _ in range(10 + round_number * 7):
            await asyncio.wait_for(process.stdout.readline(), 60) if process.stdout else None
        process.kill()
        rest = (await ended(process)).told
        expect(rest is not None, "what it told at last")
        fresh = await subject.open()
        events = await whole_log(fresh, "s1")
        expect_equal([event.seq for event in events], list(range(1, len(events) + 1)), what="the numbers")
        found = [text_of(event).split(".")[:2] for event in events if text_of(event).startswith(f"{round_number}.")]
        expect_equal(
            found, [[str(round_number), str(n)] for n in range(len(found))], what="the events of the killed process"
        )
        told = [number for _, number, _ in rest]
        expect(len(found) > (max(told) if told else 9 + round_number * 7), "an acknowledged event is missing")
        await subject.say(fresh, "s1", text="goes on")


@requirement(202, "C13", "B59", needs=("multi_process",))
async def follow_sees_another_process(subject: Subject) -> None:
    """Appends of another process reach a follower, all of them in order, those in batches too."""
    store = await subject.open()
    await subject.begin(store, "s1")
    events = store.follow("s1", after=1)
    batches = [1, 3, 1, 1, 50, 2, 1]
    taking = asyncio.ensure_future(take(events, sum(batches)))
    process = await start(append_when_told, subject.place, name="w", session_id="s1", batches=batches)
    ending = await ended(process)
    expect_equal(ending.code, 0, what=f"the exit code of the writer, which said: {ending.errors}")
    expect_equal(await taking, await store.read("s1", after=1), what="what the follower got")
    await end(events)


@requirement(203, "B49")
async def a_closed_store_says_so(subject: Subject) -> None:
    """After `close` every call is StoreClosedError, and closing again is harmless."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await store.close()
    await store.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: subject.say(store, "s1"),
        lambda: store.read("s1"),
        lambda: store.head("s1"),
        lambda: store.list(SessionQuery()),
        lambda: store.resolve("k:1"),
        lambda: store.bind("k:1", "s1"),
        lambda: store.claim("s1", owner="o", ttl_s=1),
        lambda: store.put_blob("s1", b""),
        lambda: store.blobs("s1"),
        lambda: store.runnable(now="", limit=1),
        store.verify,
    ]
    for call in calls:
        with expect_error(StoreClosedError, what="a call after close"):
            await call()


@requirement(204, "C2", "B54")
async def a_store_says_what_it_promises(subject: Subject) -> None:
    """`describe` names the URL, the kind, the durability and what a power cut may take, in words."""
    store = await subject.open()
    description = store.describe()
    expect("://" in description.url, f"a URL, got {description.url!r}")
    expect(description.kind and description.durability and description.loss_window, f"words, got {description}")
    expect_equal(description.search, subject.place.capabilities.search, what="whether it has search")
    expect_equal(description.read_only, False, what="whether it is read-only")


@requirement(205, "B49", "C2")
async def close_finishes_what_was_accepted(subject: Subject) -> None:
    """Appends under way when the store is closed either stand, or are refused; none hangs and none is half there."""
    store = await subject.open()
    await subject.begin(store, "s1")
    calls = [
        asyncio.ensure_future(store.append("s1", [subject.record(f"{n}a"), subject.record(f"{n}b")])) for n in range(10)
    ]
    await asyncio.sleep(0)
    await store.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            expect(isinstance(outcome, StoreClosedError), f"an append during close ended with {outcome!r}")
    if not subject.place.capabilities.persistent:
        return
    store = await subject.reopen()
    log = [text_of(event) for event in await whole_log(store, "s1")][1:]
    stood = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    expect_equal(sorted(log), sorted(f"{n}{half}" for n in stood for half in "ab"), what="the log after closing")


@requirement(206, "B8", "C25", needs=("files",))
async def files_are_private(subject: Subject) -> None:
    """Every file and folder the store makes is for its owner only, whatever the umask."""
    root = subject.place.root
    if root is None:
        raise AssertionError("a place with files has a root")
    old = os.umask(0)
    try:
        store = await subject.open()
        await subject.begin(store, "s1")
        await store.put_blob("s1", b"x" * 100_000)
        await store.bind("k:1", "s1")
        await subject.say(store, "s1")
        await subject.claim(store, "s1")
    finally:
        os.umask(old)
    modes = {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    await subject.close()
    open_to_others = {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
    expect(modes, "the store must have made files")
    expect_equal(json.dumps(open_to_others), "{}", what="files that others may read")
