"""Live reading: followers wait here for commits, and a poll notices those of other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from kipu.errors import StoreClosedError
from kipu.ports.store import StoredEvent

T = TypeVar("T")

# Other processes' events are to be seen within 50 ms: two looks fit into that, with room for the read.
POLL_S = 0.02
# Commits that hold nothing for a follower pass it by, but not more of them at a time: it has to read past each one day.
PASSED_OVER = 64


class Listener:
    """What one follower has heard: a version that moves with every commit that may hold events it wants."""

    __slots__ = ("_passed_over", "_types", "_waiter", "version")

    def __init__(self, types: AbstractSet[str] | None) -> None:
        self._types = types
        self._passed_over = 0
        self._waiter: asyncio.Future[None] | None = None
        self.version = 0

    def hear(self, types: AbstractSet[str] | None) -> None:
        """Hear of a commit with events of these types, or with nobody knows which."""
        if self._types is not None and types is not None and self._types.isdisjoint(types):
            self._passed_over += 1
            if self._passed_over < PASSED_OVER:
                return
        self._passed_over = 0
        self.version += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seen: int) -> None:
        """Return when something was heard after `seen` was the version."""
        if self.version != seen:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def waits(self) -> bool:
        """Return True while somebody waits for news here."""
        return self._waiter is not None and not self._waiter.done()


class Announcer:
    """Wake the followers after a commit, whoever made it.

    `changed` answers whether another process has committed since it was last asked; it is asked only while somebody waits.
    """

    def __init__(self, store: str, *, changed: Callable[[], bool] | None = None, poll_s: float = POLL_S) -> None:
        self._store = store
        self._changed = changed
        self._poll_s = poll_s
        self._listeners: set[Listener] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def announce(self, types: AbstractSet[str] | None = None) -> None:
        """Tell followers that there is something new: those who want one of `types`, or all. Call it in the event loop."""
        for listener in self._listeners:
            listener.hear(types)

    @contextmanager
    def listening(self, types: AbstractSet[str] | None = None) -> Iterator[Listener]:
        """Give a listener that hears of every commit from now on that may hold events of these types, or of any."""
        listener = Listener(types)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def wait(self, listener: Listener, *, seen: int) -> None:
        """Return when the listener has heard something after `seen` was its version. Raises: StoreClosedError."""
        self._check_open()
        if self._timer is None and self._changed is not None and listener.version == seen:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._poll_s, self._poll, loop)
        await listener.wait(seen)
        self._check_open()

    def close(self) -> None:
        """End every follower with StoreClosedError."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.announce()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=self._store)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._closed or self._changed is None or not any(listener.waits for listener in self._listeners):
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
    read_page: Callable[[T], Awaitable[FollowPage[T]]],
    announcer: Announcer,
    *,
    after: T,
    types: AbstractSet[str] | None = None,
) -> AsyncIterator[StoredEvent]:
    """Yield the events of page after page, each page read after the place where the last one ended; skip none of `types`.

    The version is taken before the read, so that a commit between the read and the wait ends the wait.
    """
    place = after
    with announcer.listening(types) as listener:
        while True:
            seen = listener.version
            events, place, more = await read_page(place)
            for event in events:
                if types is None or event.record.event_type in types:
                    yield event
            if not more:
                await announcer.wait(listener, seen=seen)
