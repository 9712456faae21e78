"""A turn's boundary: before each model call, the messages that steer it join it (architecture §5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from kipu.errors import ConflictError
from kipu.events.boundary import NoteEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnSteeredEvent
from kipu.runtime.messages.outbound import DOWNGRADED_NOTE
from kipu.runtime.messages.waiting import waiting_arrivals
from kipu.runtime.turns.turn_run import TurnRun
from kipu.session.mailbox import Author, Joining, joining


class Boundary:
    """Let waiting messages join a running turn, never between a call and its result."""

    def __init__(self, *, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._told: set[int] = set()  # messages whose wish to steer was refused already

    async def is_steered(self, run: TurnRun) -> bool:
        """Return True when a message waits that joins at the next boundary, as far as this process knows."""
        return bool(run.session.head.waiting) and bool((await self._joining(run)).consumes)

    async def cross(self, run: TurnRun) -> None:
        """Append what joins, is too late, or may not join; whoever cancels a message at the same time, only one gets it."""
        while True:
            await run.catch_up()
            if not run.session.head.waiting:
                return
            events = await self._events(run, await self._joining(run))
            if not events:
                return
            try:
                await run.add(*events, expected_seq=run.session.history.last_seq)
            except ConflictError:  # something arrived in between: look again
                continue
            return

    async def expire(self, run: TurnRun) -> datetime | None:
        """Settle what has waited too long while the turn is to park, and return when the next message has."""
        while True:
            await run.catch_up()
            arrivals = await waiting_arrivals(run.session) if run.session.head.waiting else []
            now_us = self._now_us()
            gone = tuple(arrival.seq for arrival in arrivals if arrival.is_expired(now_us))
            try:
                if gone:
                    settled = MessageSettledEvent(seqs=list(gone), reason="expired")
                    await run.add(settled, expected_seq=run.session.history.last_seq)
            except ConflictError:  # something arrived in between: look again
                continue
            left = [arrival.expires_us() for arrival in arrivals if arrival.seq not in gone]
            first_us = min((expires_us for expires_us in left if expires_us is not None), default=None)
            return None if first_us is None else datetime.fromtimestamp(first_us / 1_000_000, UTC)

    async def _joining(self, run: TurnRun) -> Joining:
        arrivals = await waiting_arrivals(run.session)
        return joining(arrivals, started_by=await self._author(run), now_us=self._now_us())

    async def _author(self, run: TurnRun) -> Author:
        message = await run.first_message()
        if message is None:
            return Author(run.story.principal, None)
        return Author(message.principal, message.sender_id)

    async def _events(self, run: TurnRun, found: Joining) -> list[SessionEvent]:
        events: list[SessionEvent] = [
            MessageSettledEvent(seqs=list(entry.seqs), reason=entry.reason) for entry in found.settle
        ]
        downgraded = [seq for seq in found.downgraded if seq not in self._told]
        if downgraded:
            said = await _downgraded_since(run, min(downgraded))  # by an earlier turn, or before this one was parked
            self._told.update(downgraded)
            downgraded = [seq for seq in downgraded if seq not in said]
        if downgraded:
            events.append(NoteEvent(kind=DOWNGRADED_NOTE, data={"seqs": downgraded, "turn_id": run.turn.id}))
        if found.consumes:
            events.append(TurnSteeredEvent(turn_id=run.turn.id, consumes=list(found.consumes)))
        return events


async def _downgraded_since(run: TurnRun, seq: int) -> set[int]:
    """Return the messages of which the log says behind `seq` that they may not steer: that is told once."""
    told: set[int] = set()
    while page := await run.session.history.reader.forwards(after=seq, until=run.session.history.last_seq):
        for item in page:
            if isinstance(item.event, NoteEvent) and item.event.kind == DOWNGRADED_NOTE:
                told.update(item.event.data.get("seqs", ()))
        seq = page[-1].seq
    return told
