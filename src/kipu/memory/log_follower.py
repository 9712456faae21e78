"""Completes memory from the logs: what a consolidation's event holds, and what a rewind has undone (A68)."""

from __future__ import annotations

from collections.abc import Iterable

from kipu.errors import ArchiveError, SessionArchivedError, SessionNotFoundError
from kipu.events.boundary import ConsolidationEvent, RewindEvent
from kipu.events.event import SessionEvent, utc_text, utc_text_us
from kipu.manager.access import owner_of
from kipu.manager.loader import PAGE, item_of
from kipu.memory.fact_text import entries_of_event
from kipu.ports.clock import Clock
from kipu.ports.head import Head
from kipu.ports.memory import LogStep, MemoryStore, Progress, Undone
from kipu.ports.store import EventStore

_TYPES = frozenset({"consolidation", "rewind"})


class LogFollower:
    """Bring memory up to a session's log, as often as anybody asks: each event counts once, whoever gets to it first.

    The event is what is true. So a process that is killed after its append and before memory has the facts leaves nothing
    out and doubles nothing: whoever reads memory next completes it.
    """

    def __init__(self, store: EventStore, memory: MemoryStore, *, clock: Clock) -> None:
        self._store = store
        self._memory = memory
        self._clock = clock

    async def complete(self) -> None:
        """Take in what was announced and may be in a log by now, and settle what can come no more."""
        for session_id, token in await self._memory.announced():
            head = await self._store.head(session_id)
            if head is not None:
                await self._catch_up(head)
            if head is None or not self._may_still_come(head, token):
                await self._memory.settle(session_id, token)

    def _may_still_come(self, head: Head, token: int) -> bool:
        """Say whether whoever announced still has the lease: without it, it appends nothing any more (C3)."""
        if head.lease_token != token or head.lease_owner is None or head.lease_until is None:
            return False
        return head.lease_until > utc_text_us(self._clock.now_us())

    async def catch_up(self, session_id: str) -> bool:
        """Bring memory up to the session's log; False where there is no such session any more."""
        head = await self._store.head(session_id)
        if head is None:
            return False
        await self._catch_up(head)
        return True

    async def standing(self, session_ids: Iterable[str]) -> tuple[frozenset[str], bool]:
        """Return which of the sessions are there, and whether memory had to be brought up to one of them."""
        there, moved = set(), False
        for session_id in session_ids:
            head = await self._store.head(session_id)
            if head is not None:
                there.add(session_id)
                moved = await self._catch_up(head) or moved
        return frozenset(there), moved

    async def _catch_up(self, head: Head) -> bool:
        known = await self._memory.progress(head.session_id)
        if (known.consolidated_seq, known.rewind_seq) == (head.consolidated_seq, head.rewind_seq):
            return False
        after = max(known.seq, head.base_seq)
        try:
            while page := await self._store.read(head.session_id, after=after, until=head.last_seq, limit=PAGE):
                for stored in page:
                    if stored.record.event_type in _TYPES:
                        await self._follow(head, item_of(stored).event, known)
                after = page[-1].seq
        except SessionNotFoundError:  # erased meanwhile
            return False
        except (
            SessionArchivedError,
            ArchiveError,
        ):  # what it taught stays (A57); the rest is followed when its events are back
            return False
        reached = Progress(head.last_seq, head.consolidated_seq, head.rewind_seq)
        await self._memory.follow_log(LogStep(head.session_id, reached))
        return True

    async def _follow(self, head: Head, event: SessionEvent, known: Progress) -> None:
        at = utc_text(event.timestamp) if event.timestamp is not None else ""
        # The anchors stay as they were until the whole log is followed: a kill in between shows that some is left.
        progress = known._replace(seq=event.seq)
        if isinstance(event, ConsolidationEvent):
            owner = owner_of(head)
            learned = entries_of_event(
                event.facts or [],
                session_id=head.session_id,
                tenant=owner.tenant,
                owner=owner.id,
                at=at,
                origin="consolidation",
            )
            await self._memory.follow_log(LogStep(head.session_id, progress, tuple(learned)))
        elif isinstance(event, RewindEvent):
            undone = Undone(after=event.to_seq, until=event.seq)
            await self._memory.follow_log(LogStep(head.session_id, progress, undone=undone))
