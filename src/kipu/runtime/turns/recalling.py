"""The memory block: what memory knows for a turn's messages, appended once, before the turn's first model call."""

from __future__ import annotations

import logging

from kipu.errors import ConcurrencyError, KipuError
from kipu.events.boundary import NoteEvent
from kipu.events.content import text_of
from kipu.events.conversation import MemoryRecalledEvent, UserMessageEvent
from kipu.manager.session import Session
from kipu.memory.memory import Memory
from kipu.memory.recall import recalled_event
from kipu.runtime.turns.turn_run import TurnRun

logger = logging.getLogger(__name__)
UNAVAILABLE_NOTE = "kipu.memory_unavailable"


class Recalling:
    """Recall for one session's turns. An event at the tail: no message that was shown before changes (C7, C9).

    A memory that cannot be read ends no turn; that it could not is in the log.
    """

    def __init__(self, session: Session, memory: Memory) -> None:
        self._session = session
        self._memory = memory

    async def at_start(self, run: TurnRun) -> None:
        """Append what is recalled, unless the turn has been shown it or has begun to answer before a crash."""
        if run.story.answered or self._shown(after=run.story.started_seq) is not None:
            return
        messages = await self._messages(run)
        text = "\n".join(text_of(message.content) for message in messages)
        asker = messages[0].principal if messages else None
        try:
            facts = await self._memory.recalled(self._session, text, shown=self._in_window(), asker=asker)
        except ConcurrencyError:
            raise
        except KipuError as error:
            logger.warning("session %s: nothing is recalled: %s", self._session.session_id, error)
            await run.add(NoteEvent(kind=UNAVAILABLE_NOTE, data={"turn_id": run.turn.id, "error": error.code}))
            return
        if facts:
            await run.add(recalled_event(facts))

    async def _messages(self, run: TurnRun) -> list[UserMessageEvent]:
        items = await self._session.history.reader.at(run.story.consumes)
        events = [items[seq].event for seq in run.story.consumes if seq in items]
        return [event for event in events if isinstance(event, UserMessageEvent)]

    def _shown(self, *, after: int) -> MemoryRecalledEvent | None:
        for item in reversed(self._session.history.items):
            if item.seq <= after:
                return None
            if isinstance(item.event, MemoryRecalledEvent):
                return item.event
        return None

    def _in_window(self) -> set[str]:
        """Return the facts that the window shows already: told once, they are there until it jumps."""
        start = self._session.history.window.start_seq
        return {
            str(fact.get("id"))
            for item in self._session.history.items
            if isinstance(item.event, MemoryRecalledEvent) and item.seq >= start
            for fact in item.event.facts
        }
