"""One turn as it runs: what it appends, what the log says of it so far, and its stop switch."""

from __future__ import annotations

import asyncio

from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.loader import PAGE
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.runtime.turns.turn_control import TurnControl
from kipu.session.turn_story import TurnStory, turn_story

PARENT = "kipu.parent"  # in a helper session's metadata: session_id, turn_id, call_id, principal, depth


class TurnRun:
    """Append under the turn's lease and keep `story` in step with the log, other writers' events included.

    `story` is what the log says and nothing else, so a turn that is taken up again after a crash goes on from the same place.
    """

    def __init__(self, session: Session, turn: Turn, *, control: TurnControl) -> None:
        self.session = session
        self.turn = turn
        self.control = control
        self.story = TurnStory()
        self._seen = 0
        self._order = asyncio.Lock()  # calls that run side by side append side by side

    async def load(self) -> None:
        """Read the story of the turn from its first event on."""
        start = self.session.head.open_turn_seq
        self._seen = start - 1
        self.story = turn_story([])
        async with self._order:
            await self._take_until(self.session.history.last_seq)

    async def add(self, *events: SessionEvent, expected_seq: int | None = None) -> list[SessionEvent]:
        """Append one batch of this turn and return it as stored. Raises: ConflictError, LeaseLostError, StoreError."""
        stored = await self.turn.add_events(list(events), expected_seq=expected_seq)
        async with self._order:
            await self._take_until(stored[0].seq - 1)
            for event in stored:
                if event.seq > self._seen:
                    self.story.take(event)
            self._seen = max(self._seen, stored[-1].seq)
        if self.control.on_progress is not None and not self.story.resumed_in_vain:
            self.control.on_progress()
        return stored

    async def catch_up(self) -> None:
        """Take in what others have appended meanwhile: decisions, messages, a wish to stop."""
        await self.session.refresh()
        async with self._order:
            await self._take_until(self.session.history.last_seq)
        if self.story.stop_mode is not None:
            self.control.stop(self.story.stop_mode)

    async def first_message(self) -> UserMessageEvent | None:
        """Return the first message the turn took, None where it took none that can be read."""
        first = self.story.consumes[:1]
        items = await self.session.history.reader.at(first)
        event = items[first[0]].event if first and first[0] in items else None
        return event if isinstance(event, UserMessageEvent) else None

    async def _take_until(self, seq: int) -> None:
        while self._seen < seq:
            page = await self.session.history.reader.forwards(after=self._seen, until=seq)
            for item in page:
                self.story.take(item.event)
            if len(page) < PAGE:
                self._seen = seq
                return
            self._seen = page[-1].seq


async def read_story(session: Session) -> TurnStory:
    """Return the story of the session's open turn, an empty one where none is open."""
    story = TurnStory()
    after = session.head.open_turn_seq - 1
    while session.head.open_turn is not None:
        page = await session.history.reader.forwards(after=after)
        for item in page:
            story.take(item.event)
        if len(page) < PAGE:
            break
        after = page[-1].seq
    return story
