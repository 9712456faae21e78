"""Following every session at once: which logs grew since they were looked at last, as the index says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kipu.errors import SessionNotFoundError
from kipu.ports.store import MAX_PAGE, StoredEvent
from kipu.stores.jsonl.desk import Desk
from kipu.stores.jsonl.index import Index


class Tracker:
    """Give the events of all sessions, page by page, in order within each; remembers how far it came."""

    def __init__(self, desk: Desk, read: Callable[..., Any]) -> None:
        self._desk = desk
        self._read = read
        self._seen: dict[str, int] = {}
        self._rev = -1
        # "From now on" begins when somebody asks to follow, not when the first event is waited for.
        for session_id, last_seq, rev in desk.ask_now(self._rows_after(-1)):
            self._seen[session_id] = last_seq
            self._rev = max(self._rev, rev)

    async def read_page(self, place: int) -> list[tuple[int, StoredEvent]]:
        """Return events that nobody has been given yet."""
        if await self._desk.ask(Index.newest_rev) < self._rev:
            self._rev = -1  # the index was made anew; what was seen is known by session
        page: list[tuple[int, StoredEvent]] = []
        for session_id, last_seq, rev in await self._desk.ask(self._rows_after(self._rev)):
            while self._seen.get(session_id, 0) < last_seq:
                events = await self._events(session_id, last_seq)
                self._seen[session_id] = events[-1].seq if events else last_seq
                page.extend((place + 1 + number, event) for number, event in enumerate(events, len(page)))
            self._rev = rev
            if len(page) >= MAX_PAGE:
                break
        return page

    async def _events(self, session_id: str, last_seq: int) -> list[StoredEvent]:
        try:
            events: list[StoredEvent] = await self._read(
                session_id, after=self._seen.get(session_id, 0), until=last_seq
            )
        except SessionNotFoundError:
            return []
        return events

    @staticmethod
    def _rows_after(rev: int) -> Callable[[Index], list[tuple[str, int, int]]]:
        return lambda index: index.grown(rev)
