"""Following every session at once: which logs grew since they were looked at last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kipu.errors import SessionNotFoundError
from kipu.ports.store import StoredEvent
from kipu.stores.follow import FollowPage
from kipu.stores.jsonl.changes import ChangeNotes
from kipu.stores.jsonl.desk import Desk

# Pages above this are read in a thread: they take longer than a hop.
QUICK_EVENTS = 256


class Tracker:
    """Give the events of all sessions, page by page, in order within each; remembers how far it came."""

    def __init__(self, desk: Desk, notes: ChangeNotes, *, read: Callable[..., Any]) -> None:
        self._desk = desk
        self._notes = notes
        self._read = read
        # "From now on" begins when somebody asks to follow, not when the first event is waited for.
        self._place, _ = notes.read(None)
        desk.catch_up_now()
        self._seen = desk.last_seqs()
        self._waiting: list[str] = []

    async def read_page(self, _: None) -> FollowPage[None]:
        """Return events that nobody has been given yet. The place is known here: there is one for each session."""
        await self._look()
        page: list[StoredEvent] = []
        while self._waiting and len(page) < QUICK_EVENTS:
            session_id = self._waiting[0]
            events = await self._events(session_id)
            if events:
                self._seen[session_id] = events[-1].seq
                page.extend(events)
            if len(events) < QUICK_EVENTS:
                self._waiting.pop(0)
        return FollowPage(page, None, bool(self._waiting))

    async def _look(self) -> None:
        self._place, grown = self._notes.read(self._place)
        if grown is None:
            last_seqs = await asyncio.to_thread(self._desk.last_seqs)
            grown = [session_id for session_id, seq in last_seqs.items() if seq > self._seen.get(session_id, 0)]
        known = set(self._waiting)
        self._waiting.extend(session_id for session_id in grown if session_id not in known)

    async def _events(self, session_id: str) -> list[StoredEvent]:
        try:
            events: list[StoredEvent] = await self._read(
                session_id, after=self._seen.get(session_id, 0), limit=QUICK_EVENTS
            )
        except SessionNotFoundError:
            return []
        return events
