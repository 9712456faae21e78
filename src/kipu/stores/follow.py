"""Live reading: followers wait here for commits, and a poll notices those of other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from kipu.errors import StoreClosedError
from kipu.ports.store import StoredEvent

T = TypeVar("T")

# Other processes' events are to be seen within 50 ms: two looks fit into that, with room for the read.
POLL_S = 0.02


class Announcer:
    """Wake every follower after a commit, whoever made it.

    `changed` answers whether another process has committed since it was last asked; it is asked only while somebody waits.
    """

    def __init__(self, store: str, *, changed: Callable[[], bool] | None = None, poll_s: float = POLL_S) -> None:
        self._store = store
        self._changed = changed
        self._poll_s = poll_s
        self._waiters: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.version = 0

    def announce(self) -> None:
        """Tell every follower that there is something new. Call it in the event loop."""
        self.version += 1
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, seen: int) -> None:
        """Return when something was announced after `seen` was the version. Raises: StoreClosedError."""
        if self._closed:
            raise StoreClosedError(store=self._store)
        if self.version != seen:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        if self._timer is None and self._changed is not None:
            self._timer = loop.call_later(self._poll_s, self._poll, loop)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
        if self._closed:
            raise StoreClosedError(store=self._store)

    def close(self) -> None:
        """End every follower with StoreClosedError."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.announce()

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._closed or not self._waiters or self._changed is None:
            return
        if self._changed():
            self.announce()
        else:
            self._timer = loop.call_later(self._poll_s, self._poll, loop)


class FollowPage(NamedTuple, Generic[T]):
    """Some events in their order, the place behind all that was looked at, and whether there is more behind it already."""

    events: Sequence[StoredEvent]
    place: T
    more: bool


def session_page(events: Sequence[StoredEvent], *, after: int, limit: int) -> FollowPage[int]:
    """Return the page that reading at most `limit` events of one session gave."""
    return FollowPage(events, events[-1].seq if events else after, len(events) == limit)


async def follow_pages(
    read_page: Callable[[T], Awaitable[FollowPage[T]]], announcer: Announcer, *, after: T
) -> AsyncIterator[StoredEvent]:
    """Yield the events of page after page, each page read after the place where the last one ended; skip none.

    The version is taken before the read, so that a commit between the read and the wait ends the wait.
    """
    place = after
    while True:
        seen = announcer.version
        events, place, more = await read_page(place)
        for event in events:
            yield event
        if not more:
            await announcer.wait(seen)
