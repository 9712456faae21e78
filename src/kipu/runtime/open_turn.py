"""A turn that a dead process left open: taken over, its calls closed, and ended (flows.md, "Killed in the middle")."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from kipu.errors import LeaseLostError
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent, TurnResumedEvent
from kipu.manager.session import Session
from kipu.manager.turn import Outcome


class ReopenedTurn:
    """Hold the session's lock and go on with its open turn; `async with` gives None where there is none to go on with.

    Calls without a result get a synthetic one: nothing runs a second time. A parked turn is left to whoever decides (C15).
    """

    def __init__(self, session: Session, *, wait_s: float | None = None) -> None:
        self._session = session
        self._wait_s = wait_s
        self._is_open = False
        self.id = ""
        self.is_answered = False
        self.outcome: Outcome = "completed"
        self.usage: dict[str, Any] | None = None
        self.error: str | None = None

    async def add_event(self, event: SessionEvent) -> SessionEvent:
        """Append one event of this turn."""
        return (await self.add_events([event]))[0]

    async def add_events(self, events: list[SessionEvent]) -> list[SessionEvent]:
        """Append events of this turn as one batch."""
        stamped = [event if event.turn_id else event.model_copy(update={"turn_id": self.id}) for event in events]
        return await self._session.add_events(stamped, token=self._session.lock.token)

    async def __aenter__(self) -> ReopenedTurn | None:
        lock = self._session.lock
        await lock.acquire(wait_s=self._wait_s)
        try:
            await self._session.refresh()
            head = self._session.head
            if head.open_turn is None or head.parked:
                return None
            self.id, self._is_open = head.open_turn, True
            resumed = TurnResumedEvent(turn_id=self.id, token=lock.token)
            await self.add_events([resumed, *await self._closing_results()])
        except BaseException:
            await lock.release()
            raise
        return self

    async def _closing_results(self) -> list[SessionEvent]:
        calls: dict[str, ToolCallEvent] = {}
        async for event in self._session.events(after=self._session.head.open_turn_seq):
            if isinstance(event, AgentMessageEvent):
                self.is_answered = event.state == "complete"
            elif isinstance(event, ToolCallEvent):
                self.is_answered = False
                calls[event.tool_call_id] = event
            elif isinstance(event, ToolResultEvent):
                calls.pop(event.tool_call_id, None)
        text = "The process ended before this call had a result; what it did is not known."
        return [
            ToolResultEvent(tool_call_id=call_id, result=text, is_error=True, synthetic="interrupted")
            for call_id in calls
        ]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_open and not isinstance(error, LeaseLostError):
                await self._finish(error)
        finally:
            await self._session.lock.release()

    async def _finish(self, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.outcome = "cancelled"
        elif error is not None:
            self.outcome, self.error = "failed", f"{type(error).__name__}: {error}"
        await self.add_event(
            TurnFinishedEvent(turn_id=self.id, outcome=self.outcome, usage=self.usage, error=self.error)
        )
