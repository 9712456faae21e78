"""Following every session at once. The server numbers commits: each event has its commit's, and so has each session its last one's.

A look gives the events of the sessions whose last commit is behind the follower's place, up to the last commit as it began.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kipu.errors import SessionArchivedError, SessionNotFoundError
from kipu.ports.store import StoredEvent
from kipu.stores.follow import FollowPage
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.reading import Reader
from kipu.stores.valkey.scripts import NEWS
from kipu.stores.valkey.server import Server

_PAGE = 1_000
_SESSIONS = 200
_READ = 256
_FIRST_LOOK = 64  # of a session with several commits: so many of its last events are looked at, then more and more


class _Grown(NamedTuple):
    """A session with news: `after` is a seq before which nothing is new, None where that is not known yet."""

    session_id: str
    last_seq: int
    after: int | None


class Everything:
    """Give the events of all sessions from now on, in order within each; remembers how far it came."""

    def __init__(self, server: Server, keys: KeyNames, *, reader: Reader) -> None:
        self._server = server
        self._keys = keys
        self._reader = reader
        self._place: int | None = None
        self._until: int | None = None  # the last commit of the look that is under way
        self._cursor = 0
        self._is_last = False
        self._looked: set[str] = set()
        self._queue: deque[_Grown] = deque()

    async def begin(self) -> None:
        """Begin: what was committed before is no news."""
        if self._place is None:
            value = await self._server.ask("GET", self._keys.counter)
            if self._place is None:
                self._place = int(value or 0)

    async def read_page(self, _: None) -> FollowPage[None]:
        """Return events that nobody has been given yet."""
        await self.begin()
        events: list[StoredEvent] = []
        while len(events) < _PAGE:
            if self._queue:
                events += await self._next(self._queue[0])
            elif self._until is not None and self._is_last:
                self._place, self._until = self._until, None
                self._looked.clear()
                return FollowPage(events, None, False)
            else:
                await self._look()
        return FollowPage(events, None, True)

    async def _look(self) -> None:
        place = self._place or 0
        if self._until is None:
            self._cursor = place
        answer = await self._server.look(
            NEWS, self._keys.counter, self._keys.changed, self._cursor, _SESSIONS, self._keys.heads
        )
        newest, rows = int(answer[0]), answer[1:]
        if newest < place:  # the server lost its last writes, and gives their numbers again
            self._place = place = newest
        if self._until is None:
            self._until = newest
        self._is_last = len(rows) < 5 * _SESSIONS
        for number in range(0, len(rows), 5):
            session_id = rows[number].decode()
            last_seq, first, before = map(int, rows[number + 2 : number + 5])
            self._cursor = int(rows[number + 1])
            if session_id not in self._looked:
                self._looked.add(session_id)
                # Where only the last commit is new, it says itself where it begins.
                is_only = before <= place and self._cursor <= self._until
                self._queue.append(_Grown(session_id, last_seq, first - 1 if is_only else None))

    async def _next(self, grown: _Grown) -> list[StoredEvent]:
        """Return the next events of the session at hand; it makes room when all that was committed up to now was given."""
        try:
            after = await self._first(grown) if grown.after is None else grown.after
            rows = await self._reader.rows(grown.session_id, after=after, until=grown.last_seq, limit=_READ)
        except SessionArchivedError as error:
            self._queue[0] = grown._replace(after=error.data["until"])
            return []
        except SessionNotFoundError:
            self._queue.popleft()
            return []
        if len(rows) == _READ and rows[-1].commit <= (self._until or 0):
            self._queue[0] = grown._replace(after=rows[-1].seq)
        else:
            self._queue.popleft()
        place, until = self._place or 0, self._until or 0
        return [row.event for row in rows if row.event is not None and place < row.commit <= until]

    async def _first(self, grown: _Grown) -> int:
        """Return a seq before which nothing is new, without reading through all of the session."""
        count, till = _FIRST_LOOK, grown.last_seq
        while True:
            rows = await self._reader.rows(grown.session_id, after=0, until=till, limit=count, backwards=True)
            known = next((row.seq for row in rows if 0 <= row.commit <= (self._place or 0)), None)
            if known is not None or len(rows) < count:
                return known or 0
            till, count = rows[-1].seq - 1, min(count * 4, _PAGE)
