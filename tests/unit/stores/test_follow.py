"""Live reading: nothing that is committed while a follower reads is missed, and closing ends every wait."""

from __future__ import annotations

import asyncio

import pytest

from kipu.errors import StoreClosedError
from kipu.ports.store import Record, StoredEvent
from kipu.stores.follow import Announcer, follow_pages


def stored(seq: int) -> StoredEvent:
    return StoredEvent(seq, "one", Record(f"e{seq}", "note", "2027-01-15T08:00:00.000000Z", b"{}"))


async def test_what_is_committed_during_a_read_ends_the_wait_after_it() -> None:
    """A commit between a follower's look and its wait is seen without another one (A9, C24)."""
    log: list[StoredEvent] = []
    announcer = Announcer("test")

    async def read_page(place: int) -> list[tuple[int, StoredEvent]]:
        page = [(event.seq, event) for event in log[place:]]
        if not page and len(log) < 3:  # somebody commits just after the look
            log.append(stored(len(log) + 1))
            announcer.announce()
        return page

    events = follow_pages(read_page, announcer, after=0)
    async with asyncio.timeout(10):
        assert [(await anext(events)).seq for _ in range(3)] == [1, 2, 3]


async def test_closing_ends_whoever_waits_and_whoever_comes() -> None:
    """Once closed, a wait that is under way and every later one end with StoreClosedError (B49)."""
    announcer = Announcer("test")
    waiting = asyncio.ensure_future(announcer.wait(announcer.version))
    await asyncio.sleep(0)
    announcer.close()
    async with asyncio.timeout(10):
        with pytest.raises(StoreClosedError):
            await waiting
        with pytest.raises(StoreClosedError):
            await announcer.wait(announcer.version)
