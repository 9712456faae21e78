"""Live reading: nothing that is committed while a follower reads is missed, and closing ends every wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.errors import StoreClosedError
from kipu.ports.store import Record, StoredEvent
from kipu.stores.follow import PASSED_OVER, Announcer, FollowPage, follow_pages, session_page
from kipu.wiring import open_store


def stored(seq: int) -> StoredEvent:
    return StoredEvent(seq, "one", Record(f"e{seq}", "note", "2027-01-15T08:00:00.000000Z", b"{}"))


async def test_what_is_committed_during_a_read_ends_the_wait_after_it() -> None:
    """A commit between a follower's look and its wait is seen without another one (A9, C24)."""
    log: list[StoredEvent] = []
    announcer = Announcer("test")

    async def read_page(place: int) -> FollowPage[int]:
        page = log[place:]
        if len(log) < 3:  # somebody commits just after the look
            log.append(stored(len(log) + 1))
            announcer.announce()
        return session_page(page, after=place, limit=10)

    events = follow_pages(read_page, announcer, after=0)
    async with asyncio.timeout(60):
        assert [(await anext(events)).seq for _ in range(3)] == [1, 2, 3]


async def test_a_follower_reads_once_for_a_commit_and_again_while_there_is_more() -> None:
    """A page that was not full is not asked after: a follower costs one read a commit, and skips nothing (A9, C24)."""
    log = [stored(seq) for seq in range(1, 6)]
    announcer, reads = Announcer("test"), 0

    async def read_page(place: int) -> FollowPage[int]:
        nonlocal reads
        reads += 1
        return session_page(log[place : place + 2], after=place, limit=2)

    events = follow_pages(read_page, announcer, after=0)
    async with asyncio.timeout(60):
        assert [(await anext(events)).seq for _ in range(5)] == [1, 2, 3, 4, 5]
        assert reads == 3
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        log.append(stored(6))
        announcer.announce()
        assert (await waiting).seq == 6
    assert reads == 4


async def test_a_follower_passes_over_a_page_of_nothing() -> None:
    """Events that cannot be read, a whole page of them, hide none that come after them (A53, C24)."""
    announcer = Announcer("test")

    async def read_page(place: int) -> FollowPage[int]:
        return FollowPage([], 256, True) if place < 256 else FollowPage([stored(257)], 257, False)

    async with asyncio.timeout(60):
        assert (await anext(follow_pages(read_page, announcer, after=0))).seq == 257


async def test_a_commit_without_wanted_types_wakes_nobody_but_one_day() -> None:
    """A follower of few types is not woken for the others, and reads past them before there are too many (A9, C24)."""
    log: list[StoredEvent] = []
    announcer, reads = Announcer("test"), 0

    async def read_page(place: int) -> FollowPage[int]:
        nonlocal reads
        reads += 1
        return session_page(log[place:], after=place, limit=1000)

    def commit(event_type: str) -> None:
        event = stored(len(log) + 1)
        log.append(event._replace(record=event.record._replace(event_type=event_type)))
        announcer.announce({event_type})

    waiting = asyncio.ensure_future(anext(follow_pages(read_page, announcer, after=0, types={"user_message"})))
    await asyncio.sleep(0)
    for _ in range(PASSED_OVER - 1):
        commit("note")
        await asyncio.sleep(0)
    assert reads == 1
    commit("note")
    await asyncio.sleep(0)
    assert (reads, waiting.done()) == (2, False)
    commit("user_message")
    async with asyncio.timeout(60):
        assert (await waiting).seq == PASSED_OVER + 1


async def test_closing_ends_whoever_waits_and_whoever_comes() -> None:
    """Once closed, a wait that is under way and every later one end with StoreClosedError (B49)."""
    announcer = Announcer("test")
    with announcer.listening() as listener:
        waiting = asyncio.ensure_future(announcer.wait(listener, seen=listener.version))
        await asyncio.sleep(0)
        announcer.close()
        async with asyncio.timeout(60):
            with pytest.raises(StoreClosedError):
                await waiting
            with pytest.raises(StoreClosedError):
                await announcer.wait(listener, seen=listener.version)


@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "jsonl:///{}/a"])
async def test_a_follower_that_waits_sees_what_another_store_appends(url: str, tmp_path: Path) -> None:
    """An append by another process wakes whoever waits already, for one session and for all (A9, C24)."""
    mine, theirs = await open_store(url.format(tmp_path)), await open_store(url.format(tmp_path))
    try:
        init = Record("e1", "session_init", "2027-01-15T08:00:00.000000Z", b"{}")
        await mine.append("one", [init])
        one, everything = mine.follow("one", after=1), mine.follow()
        waiting = [asyncio.ensure_future(anext(events)) for events in (one, everything)]
        await asyncio.wait(waiting, timeout=0.2)  # both have looked, and found nothing
        assert not any(task.done() for task in waiting)
        await theirs.append("one", [stored(2).record])
        async with asyncio.timeout(60):
            assert [event.seq for event in await asyncio.gather(*waiting)] == [2, 2]
    finally:
        await mine.close()
        await theirs.close()
