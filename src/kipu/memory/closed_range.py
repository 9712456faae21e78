"""How far memory may take a history in: to where every exchange before is closed, and never into the recent tail. Pure (A60, A61)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kipu.events.conversation import ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent, TurnStartedEvent, TurnSteeredEvent


@dataclass(slots=True)
class _Standing:
    """What is open at one point of a history."""

    turn: str | None = None
    calls: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)  # open over a whole exchange: nobody waits for their results
    waiting: set[int] = field(default_factory=set)

    @property
    def is_closed(self) -> bool:
        return self.turn is None and not self.calls and not self.waiting

    def take(self, event: SessionEvent) -> None:
        if isinstance(event, UserMessageEvent):
            if event.queued:
                self.waiting.add(event.seq)
            self.calls -= self.given_up
            self.given_up = set(self.calls)
        elif isinstance(event, TurnStartedEvent | TurnSteeredEvent):
            self.turn = event.turn_id
            self.waiting.difference_update(event.consumes)
        elif isinstance(event, MessageSettledEvent):
            self.waiting.difference_update(event.seqs)
        elif isinstance(event, TurnFinishedEvent):
            self.turn = None
            self.calls.clear()
        elif isinstance(event, ToolCallEvent):
            self.calls.add(event.tool_call_id)
        elif isinstance(event, ToolResultEvent):
            self.calls.discard(event.tool_call_id)


def closed_until(events: Sequence[SessionEvent], *, keep_exchanges: int, is_whole: bool = True) -> int | None:
    """Return the last seq that may be taken in, None where there is none; `events` stand (no undone ones) and are in order.

    The newest `keep_exchanges` stay out. Where `events` do not reach the end of the log (`is_whole` is False), what follows
    them is the tail. A message that no turn has taken yet is never passed: it will stand where it is taken.
    """
    before_messages = list(_points(events))
    if not is_whole:
        return before_messages[-1] if before_messages else None
    if keep_exchanges > 0:
        return before_messages[-keep_exchanges] if len(before_messages) >= keep_exchanges else None
    standing = _Standing()
    for event in events:
        standing.take(event)
    if events and standing.is_closed:
        return events[-1].seq
    return before_messages[-1] if before_messages else None


def _points(events: Iterable[SessionEvent]) -> Iterable[int]:
    """Yield where a boundary may be: just before a message, with everything before it closed."""
    standing = _Standing()
    for event in events:
        if isinstance(event, UserMessageEvent) and standing.is_closed and event.seq > 1:
            yield event.seq - 1
        standing.take(event)
