"""What happens in one session, in one order: its log's events and the live pieces that come between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from kipu.errors import StoreClosedError
from kipu.events.event import SessionEvent
from kipu.manager.access import Verb
from kipu.runtime.live.assembly import Assembly
from kipu.runtime.live.piece import Piece
from kipu.runtime.live.streams import LiveStreams
from kipu.runtime.observer import News

if TYPE_CHECKING:
    from kipu.manager.session import Session
    from kipu.ports.principal import Principal

Happening: TypeAlias = "SessionEvent | News"
CHARACTERS_KEPT = 4_000_000
PIECES_KEPT = 4_000  # for a watcher that is slow; what is dropped of an answer comes again, or is in the log
_ASK_AGAIN_S = 0.5
_LOOKED_BACK = 100  # events


class SessionWatch:
    """Iterate over a session's happenings, from after `after` until the task is cancelled, wherever its turns run.

    Every event is given once, in order, and every piece between the event that its stream began behind and the one that has it
    whole. Pieces may be missing, events never. It ends with AccessDeniedError or SessionNotFoundError when the principal may read
    no more.
    """

    def __init__(
        self, session: Session, streams: LiveStreams, *, after: int, principal: Principal | None = None
    ) -> None:
        self._session = session
        self._streams = streams
        self._principal = principal
        self._seen = after
        self._came = asyncio.Event()
        self._pieces: deque[Piece] = deque()
        self._characters = 0
        self._assembly = Assembly(self._ask)
        self._asked_s = 0.0

    async def __aiter__(self) -> AsyncGenerator[Happening, None]:
        """Yield what happens."""
        following = asyncio.ensure_future(self._follow())
        following.add_done_callback(lambda _task: self._came.set())
        try:
            with self._streams.listen(self._session.session_id, self._put):
                await self._remember()
                while True:
                    self._came.clear()
                    if following.done():
                        following.result()
                        return
                    piece = self._take_piece()
                    until = self._session.history.last_seq if piece is None else piece.at
                    if await self._is_reached(until):
                        # What takes the right back is an event too: nothing behind it is given.
                        await self._session.permit(Verb.READ, self._principal)
                        async for event in self._events(until):
                            for news in self._assembly.event(event):
                                yield news
                            yield event
                        for news in self._assembly.take(piece) if piece is not None else ():
                            yield news
                    if piece is None and self._seen >= self._session.history.last_seq and not self._pieces:
                        await self._came.wait()
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(following, return_exceptions=True)

    async def _remember(self) -> None:
        """Know what was over before, so that pieces of it that come late are not shown."""
        for item in await self._session.history.reader.forwards(
            after=max(self._seen - _LOOKED_BACK, 0), until=self._seen
        ):
            self._assembly.event(item.event)

    async def _is_reached(self, seq: int) -> bool:
        """Return True where the log has come so far; of a piece from elsewhere that may not be known here yet."""
        if seq > self._session.history.last_seq:
            await self._session.refresh()
        return seq <= self._session.history.last_seq

    async def _events(self, until: int) -> AsyncIterator[SessionEvent]:
        while self._seen < until:
            page = await self._session.history.reader.forwards(after=self._seen, until=until)
            for item in page:
                yield item.event
            self._seen = page[-1].seq if page else until

    async def _follow(self) -> None:
        """Notice what other processes append; what this one does is in the session already."""
        with suppress(StoreClosedError):
            async for event in self._session.follow(after=self._seen, principal=self._principal):
                if event.seq > self._session.history.last_seq:
                    await self._session.refresh()
                self._came.set()

    def _put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._characters += piece.length
        while len(self._pieces) > PIECES_KEPT or (self._characters > CHARACTERS_KEPT and len(self._pieces) > 1):
            self._take_piece()
        self._came.set()

    def _take_piece(self) -> Piece | None:
        piece = self._pieces.popleft() if self._pieces else None
        self._characters -= piece.length if piece is not None else 0
        return piece

    def _ask(self) -> None:
        """Have what streams come once more from its beginning, not too often."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_s >= _ASK_AGAIN_S:
            self._asked_s = now_s
            self._streams.ask(self._session.session_id, self._put)
