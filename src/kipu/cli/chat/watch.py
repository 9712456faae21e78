"""What happens in one session, in one order: its log's events and the live pieces that come between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from kipu.errors import StoreClosedError
from kipu.events.event import SessionEvent
from kipu.runtime.observer import Listener, LiveFeed, News

if TYPE_CHECKING:
    from kipu.manager.session import Session

Happening: TypeAlias = "SessionEvent | News"


class SessionWatch:
    """Iterate over a session's happenings, from after `after` until the task is cancelled.

    A piece that was told after event n and before event n + 1 comes between the two, so that a message in the log is known to
    be the one whose pieces came before it. What other processes append comes too, without pieces.
    """

    def __init__(self, session: Session, feed: LiveFeed, *, after: int) -> None:
        self._session = session
        self._feed = feed
        self._seen = after
        self._came = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Happening]:
        """Yield what happens."""
        listener = _PlacedListener(self._session, self._came)
        following = asyncio.ensure_future(self._follow())
        try:
            with self._feed.listen(self._session.session_id, listener=listener):
                while True:
                    self._came.clear()
                    placed = listener.next()
                    until = placed[0] if placed is not None else self._session.history.last_seq
                    async for event in self._events(until):
                        yield event
                    if placed is not None:
                        yield placed[1]
                    elif self._seen >= self._session.history.last_seq and not listener.placed:
                        await self._came.wait()
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _events(self, until: int) -> AsyncIterator[SessionEvent]:
        while self._seen < until:
            page = await self._session.history.reader.forwards(after=self._seen, until=until)
            for item in page:
                yield item.event
            self._seen = page[-1].seq if page else until

    async def _follow(self) -> None:
        """Notice what other processes append; what this one does is in the session already."""
        with suppress(StoreClosedError):
            async for event in self._session.follow(after=self._seen):
                if event.seq > self._session.history.last_seq:
                    await self._session.refresh()
                self._came.set()


class _PlacedListener(Listener):
    """Keep pieces with the place in the log where they were told; none is dropped, for answers have a limit of their own."""

    def __init__(self, session: Session, came: asyncio.Event) -> None:
        super().__init__(1)
        self._session = session
        self._came = came
        self.placed: deque[tuple[int, News]] = deque()

    def put(self, news: News) -> None:
        """Take a piece."""
        self.placed.append((self._session.history.last_seq, news))
        self._came.set()

    def next(self) -> tuple[int, News] | None:
        """Return the oldest piece that was not given yet."""
        return self.placed.popleft() if self.placed else None
