"""Somebody who follows every session as one does over HTTP: lines that end, and a last seen (session, seq) to go on from."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from typing import Any

from kipu.errors import StoreUnavailableError
from kipu.manager.manager import SessionManager
from kipu.ports.store import EventStore, SessionQuery, StoredEvent
from kipu.wiring import open_manager


class Follower:
    """Remember of each session how far it was given, and say what came twice, out of order or not at all."""

    def __init__(self, name: str, url: str, *, seed: int, stays_s: float) -> None:
        self.name = name
        self.seen: dict[str, int] = {}
        self.problems: list[str] = []
        self.connections = 0
        self.live = 0  # events that came by following, not by reading what was missed
        self._chosen: list[str] = []
        self._url = url
        self._stays_s = stays_s  # on average, before it goes and comes back
        self._chance = random.Random(seed)

    async def run(self) -> None:
        """Follow until it is cancelled."""
        while True:
            with suppress(StoreUnavailableError):
                async with await open_manager(self._url) as manager:
                    while True:
                        await self._connect(manager)
            await asyncio.sleep(0.1)

    async def _connect(self, manager: SessionManager) -> None:
        """Be connected once: begin to follow, read what was missed, then take what comes."""
        self.connections += 1
        given: dict[str, int] = {}  # over this connection
        following: Any = manager.store.follow()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stays_s * 2 * self._chance.random()), aclosing(following) as events:
                await self._catch_up(manager.store)
                async for event in events:
                    self._take(event, given)

    async def _catch_up(self, store: EventStore) -> None:
        """Read each session on from where it was left."""
        cursor: str | None = None
        while True:
            page = await store.list(SessionQuery(limit=500, cursor=cursor, order="created_at"))
            for head in page.items:
                while self.seen.get(head.session_id, 0) < head.last_seq:
                    for event in await store.read(head.session_id, after=self.seen.get(head.session_id, 0)):
                        self._take_next(event)
            cursor = page.cursor
            if cursor is None:
                return

    def _take(self, event: StoredEvent, given: dict[str, int]) -> None:
        """Take one that came: what was read meanwhile comes once more at the beginning, and never again after that."""
        session_id, before = event.session_id, given.get(event.session_id)
        if before is not None and event.seq != before + 1:
            self.problems.append(f"{self.name}: {session_id} gave {event.seq} after {before}")
        given[session_id] = event.seq
        if event.seq > self.seen.get(session_id, 0):
            self.live += 1
            self._take_next(event)

    def _take_next(self, event: StoredEvent) -> None:
        last = self.seen.get(event.session_id, 0)
        if event.seq != last + 1:
            self.problems.append(f"{self.name}: {event.session_id} had {last}, and {event.seq} came")
        self.seen[event.session_id] = event.seq

    def missing(self, last_seqs: dict[str, int]) -> dict[str, tuple[int, int]]:
        """Return the sessions of which it has not been given everything, with what it has and what there is."""
        return {one: (self.seen.get(one, 0), last) for one, last in last_seqs.items() if self.seen.get(one, 0) != last}


class SessionFollower(Follower):
    """Follow some sessions, each on a line of its own that goes on after the last seq that was seen."""

    async def _connect(self, manager: SessionManager) -> None:
        self.connections += 1
        if not self._chosen:  # once and for all: which ones are the first may change while they are made
            page = await manager.store.list(SessionQuery(limit=5, order="created_at", descending=False))
            self._chosen = [head.session_id for head in page.items]
        lines = [self._follow_one(manager.store, session_id) for session_id in self._chosen]
        if not lines:
            await asyncio.sleep(0.05)
        await asyncio.gather(*lines)

    async def _follow_one(self, store: EventStore, session_id: str) -> None:
        following: Any = store.follow(session_id, after=self.seen.get(session_id, 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stays_s * 2 * self._chance.random()), aclosing(following) as events:
                async for event in events:
                    self.live += 1
                    self._take_next(event)

    def missing(self, last_seqs: dict[str, int]) -> dict[str, tuple[int, int]]:
        """Return what is missing of the sessions that it follows."""
        return super().missing({one: last_seqs[one] for one in self._chosen})
