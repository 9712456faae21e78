"""One turn as it runs: what it appends, what the log says of it so far, and its stop switch."""

from __future__ import annotations

import asyncio

from kipu.errors import CallParkedError
from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.loader import PAGE
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.runtime.turns.turn_control import TurnControl
from kipu.runtime.turns.withheld import Withheld
from kipu.session.turn_story import TurnStory, turn_story


class TurnRun:
    """Append under the turn's lease and keep `story` in step with the log, other writers' events included.

    `story` is what the log says and nothing else, so a turn that is taken up again after a crash goes on from the same place.
    """

    def __init__(self, session: Session, turn: Turn, *, control: TurnControl, withheld: Withheld | None = None) -> None:
        self.withheld = withheld or Withheld()
        self.session = session
        self.turn = turn
        self.control = control
        self.story = TurnStory()
        self.parked: dict[str, CallParkedError] = {}  # calls that wait for a person elsewhere
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
        self.withheld.take(events, stored)
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

    @property
    def place(self) -> tuple[int, int]:
        """Return behind which event the turn stands, and its fencing token: what streams is told with both."""
        lease = self.session.lock.lease
        return self.session.history.last_seq, 0 if lease is None else lease.token

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


class FollowedTurn:
    """The open turn of a session as its log tells of it. However often it is looked at, each event is read once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._story = TurnStory()
        self._started_seq = self._seen = 0

    async def story(self) -> TurnStory:
        """Return the story of the turn that is open, an empty one where none is; `refresh` the session first."""
        head = self.session.head
        if head.open_turn is None:
            return TurnStory()
        if head.open_turn_seq != self._started_seq:
            self._story, self._started_seq, self._seen = TurnStory(), head.open_turn_seq, head.open_turn_seq - 1
        while True:
            page = await self.session.history.reader.forwards(after=self._seen)
            for item in page:
                self._story.take(item.event)
                self._seen = item.seq
            if len(page) < PAGE:
                return self._story


async def read_story(session: Session) -> TurnStory:
    """Return the story of the session's open turn, an empty one where none is open."""
    return await FollowedTurn(session).story()
