"""Requirements 130 to 144: live reading that skips nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kipu.errors import StoreClosedError
from kipu.ports.store import EventStore, StoredEvent
from kipu.testing.conformance.expectation import UnmetError, expect, expect_equal
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import Subject, whole_log

WAIT_S = 60.0


async def take(events: AsyncIterator[StoredEvent], count: int) -> list[StoredEvent]:
    """Return the next `count` events, or say how many came."""
    taken: list[StoredEvent] = []
    try:
        async with asyncio.timeout(WAIT_S):
            while len(taken) < count:
                taken.append(await anext(events))
    except TimeoutError as error:
        raise UnmetError(f"follow must give {count} events, and gave {len(taken)} in {WAIT_S:.0f} s") from error
    except StopAsyncIteration as error:
        raise UnmetError(f"follow ended after {len(taken)} events of {count}") from error
    return taken


async def end(*followers: AsyncIterator[StoredEvent]) -> None:
    """Close the followers, as leaving them does."""
    for follower in followers:
        close = getattr(follower, "aclose", None)
        if close is not None:
            await close()


async def give_way(turns: int = 3) -> None:
    """Let other tasks start."""
    for _ in range(turns):
        await asyncio.sleep(0)


@requirement(130, "C13", "B6")
async def follow_gives_the_old_then_the_new(subject: Subject) -> None:
    """`follow` gives the events after `after` as `read` does, then each new one when it is committed."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for number in range(5):
        await subject.say(store, "s1", text=str(number))
    events = store.follow("s1", after=2)
    old = await take(events, 4)
    expect_equal(old, await store.read("s1", after=2), what="what was there")
    waiting = asyncio.ensure_future(take(events, 3))
    await give_way()
    await store.append("s1", [subject.record("a"), subject.record("b")])
    await subject.say(store, "s1", text="c")
    expect_equal(await waiting, await store.read("s1", after=6), what="what came")
    await end(events)


@requirement(131, "C1", "C16")
async def follow_skips_nothing_under_load(subject: Subject) -> None:
    """While many tasks append, followers that started at different times each get the whole log in order, without a gap."""
    store = await subject.open()
    await subject.begin(store, "s1")
    total = 1 + 8 * 25
    followers = [store.follow("s1") for _ in range(3)]
    taking = [asyncio.ensure_future(take(follower, total)) for follower in followers[:2]]

    async def write(name: int) -> None:
        for number in range(25):
            await subject.say(store, "s1", text=f"{name}.{number}")
            await asyncio.sleep(0)

    await asyncio.gather(*(write(name) for name in range(8)))
    taking.append(asyncio.ensure_future(take(followers[2], total)))
    log = await whole_log(store, "s1")
    for taken in await asyncio.gather(*taking):
        expect_equal([event.seq for event in taken], list(range(1, total + 1)), what="the numbers")
        expect_equal(taken, log, what="the events")
    await end(*followers)


@requirement(132, "C13", "B59", needs=("shared",))
async def follow_sees_another_stores_appends(subject: Subject) -> None:
    """Appends through one store object reach a follower of another at the same place, all and in order."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    events = two.follow("s1")
    waiting = asyncio.ensure_future(take(events, 61))

    async def write(store: EventStore) -> None:
        for number in range(30):
            await subject.say(store, "s1", text=str(number))
            await asyncio.sleep(0.001)

    await asyncio.gather(write(one), write(two))
    expect_equal(await waiting, await whole_log(one, "s1"), what="what the other follower got")
    await end(events)


@requirement(133, "C13", "C1")
async def following_everything_skips_nothing(subject: Subject) -> None:
    """Without an id `follow` gives every event committed from its first step on, of every session, new ones too, each in order."""
    store = await subject.open()
    await subject.begin(store, "before")
    events = store.follow()
    waiting = asyncio.ensure_future(take(events, 5 * 11 + 1))
    await give_way(5)
    await subject.say(store, "before", text="after all")

    async def write(session_id: str) -> None:
        await subject.begin(store, session_id)
        for number in range(10):
            await subject.say(store, session_id, text=str(number))
            await asyncio.sleep(0)

    await asyncio.gather(*(write(f"s{n}") for n in range(5)))
    taken = await waiting
    for session_id in [f"s{n}" for n in range(5)]:
        own = [event for event in taken if event.session_id == session_id]
        expect_equal(own, await whole_log(store, session_id), what=f"the events of {session_id}")
    rest = [(event.session_id, event.seq) for event in taken if event.session_id == "before"]
    expect_equal(rest, [("before", 2)], what="the events of the session that was there before")
    await end(events)


@requirement(134, "C13", "B59", needs=("shared",))
async def following_everything_sees_another_stores_appends(subject: Subject) -> None:
    """Following everything gives the appends through another store object at the same place, and misses no session."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s0")
    events = two.follow()
    waiting = asyncio.ensure_future(take(events, 4 * 6))
    await asyncio.sleep(0.1)

    async def write(store: EventStore, session_id: str) -> None:
        await subject.begin(store, session_id)
        for number in range(5):
            await subject.say(store, session_id, text=str(number))

    await asyncio.gather(write(one, "a"), write(two, "b"), write(one, "c"), write(two, "d"))
    taken = await waiting
    for session_id in ("a", "b", "c", "d"):
        own = [event for event in taken if event.session_id == session_id]
        expect_equal(own, await whole_log(one, session_id), what=f"the events of {session_id}")
    await end(events)


@requirement(135, "C13")
async def a_slow_follower_misses_nothing(subject: Subject) -> None:
    """A follower that takes its time gets everything that was appended meanwhile, more than a page of it too."""
    store = await subject.open()
    await subject.begin(store, "s1")
    events = store.follow("s1")
    first = await take(events, 1)
    for start in range(0, 2500, 500):
        await store.append("s1", [subject.record(str(start + number)) for number in range(500)])
    taken = first + await take(events, 2500)
    expect_equal([event.seq for event in taken], list(range(1, 2502)), what="the numbers")
    await end(events)


@requirement(136, "B49")
async def closing_ends_followers(subject: Subject) -> None:
    """When the store is closed, waiting followers end, with StoreClosedError or without, and do not hang."""
    store = await subject.open()
    await subject.begin(store, "s1")
    one, everything = store.follow("s1", after=1), store.follow()
    waiting = [asyncio.ensure_future(anext(one)), asyncio.ensure_future(anext(everything))]
    await give_way()
    await store.close()
    done, pending = await asyncio.wait(waiting, timeout=WAIT_S)
    for task in pending:
        task.cancel()
    expect(not pending, "a follower must end when the store is closed")
    for task in done:
        error = task.exception()
        expect(isinstance(error, StoreClosedError | StopAsyncIteration), f"a follower ended with {error!r}")


@requirement(137, "B49")
async def a_left_follower_leaves_nothing(subject: Subject) -> None:
    """Followers that are cancelled while they wait, or closed, hinder no append and no other follower."""
    store = await subject.open()
    await subject.begin(store, "s1")
    for _ in range(20):
        events = store.follow("s1", after=1)
        waiting = asyncio.ensure_future(anext(events))
        await give_way()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await end(events)
    staying = store.follow("s1", after=1)
    await subject.say(store, "s1", text="still here")
    expect_equal([event.seq for event in await take(staying, 1)], [2], what="what the staying follower got")
    await end(staying)


@requirement(138, "C13", "C20")
async def following_everything_outlives_an_erasure(subject: Subject) -> None:
    """After a session with more than a page of events was erased, whoever follows everything still gets what comes next."""
    store = await subject.open()
    await subject.begin(store, "first")
    events = store.follow()
    waiting = asyncio.ensure_future(take(events, 1))
    await give_way(5)
    await subject.say(store, "first", text="seen")
    await waiting
    await subject.begin(store, "gone")
    for _ in range(3):
        await store.append("gone", [subject.record() for _ in range(500)])
    await store.erase("gone", lease=await subject.claim(store, "gone"))
    await subject.say(store, "first", text="next")
    async with asyncio.timeout(WAIT_S):
        while True:
            event = (await take(events, 1))[0]
            if event.session_id == "first":
                break
    expect_equal(event.seq, 3, what="the next event of the other session")
    await end(events)


@requirement(139, "C13")
async def following_some_types_gives_them_all_and_no_others(subject: Subject) -> None:
    """With `types` a follower gets every event of these types and no other, whatever lies between them."""
    store = await subject.open()
    await subject.begin(store, "s1")
    followers = [store.follow(types={"user_message"}), store.follow("s1", types={"user_message"})]
    waiting = [asyncio.ensure_future(take(events, 4)) for events in followers]
    await give_way(5)
    wanted: list[int] = []
    for gap in (0, 1, 200, 700):
        for _ in range(gap):
            await store.append("s1", [subject.record(event_type="note")])
        appended = await store.append(
            "s1", [subject.record(event_type="user_message"), subject.record(event_type="note")]
        )
        wanted.append(appended.first_seq)
    for taken in await asyncio.gather(*waiting):
        expect_equal([event.seq for event in taken], wanted, what="the numbers of what was asked for")
    for events in followers:
        await end(events)
