"""What the log says of one turn: which calls are still open and how far each came (C14). Pure; the log is all that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from kipu.events.boundary import NoteEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    ToolStartedEvent,
)
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    ApprovalDecisionEvent,
    ApprovalRequestEvent,
    StopRequestedEvent,
    TurnParkedEvent,
    TurnResumedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)

HANDED_OVER_NOTE = "kipu.handed_over"  # a process that ended in order left the turn to the next one
STOP_MODES = ("stop", "interrupt", "rollback", "rollback_forced")  # who asks for most says how a turn ends


@dataclass(slots=True)
class OpenCall:
    """One call without a result: how often it began, and what a person was asked and said about it.

    `parks` are the beginnings that ended in order, because the call waits for a person elsewhere.
    """

    call: ToolCallEvent
    starts: int = 0
    parks: int = 0
    request: ApprovalRequestEvent | None = None
    decision: ApprovalDecisionEvent | None = None

    @property
    def id(self) -> str:
        """Return our id of the call."""
        return self.call.tool_call_id

    @property
    def awaits_decision(self) -> bool:
        """Return True while a person is asked and has not decided."""
        return self.request is not None and self.decision is None


class Answered(NamedTuple):
    """What one answer of the turn used, and whose it was."""

    usage: dict[str, Any] | None
    provider: str
    model: str


@dataclass(slots=True)
class TurnStory:
    """One turn so far.

    `resumed_in_vain` counts how often it was taken up since something came of it; `resumed_without_step` since it made any
    step, the start of a call included: calls have a limit of starts of their own.
    """

    turn_id: str = ""
    started_seq: int = 0
    policy: str = "followup"
    principal: str | None = None
    consumes: list[int] = field(default_factory=list)
    calls: dict[str, OpenCall] = field(default_factory=dict)
    interrupted: list[ToolCallEvent] = field(default_factory=list)  # what ran, nobody knows how far
    used_tools: list[str] = field(default_factory=list)  # names of what began to run, in order
    answered: list[Answered] = field(default_factory=list)
    spent_by_calls: list[dict[str, Any]] = field(default_factory=list)  # what results say that their calls used
    waits_for: list[str] = field(default_factory=list)  # while it is parked
    until: datetime | None = None
    decided: ApprovalDecisionEvent | None = None  # the last one since it was taken up, a helper's too
    worked_s: float = 0.0  # before it was taken up the last time
    worked_since: datetime | None = None
    worked_until: datetime | None = None
    is_answered: bool = False
    resumed_in_vain: int = 0
    resumed_without_step: int = 0
    stop_mode: str | None = None

    @property
    def open_calls(self) -> list[OpenCall]:
        """Return the calls without a result, in the order the model made them."""
        return list(self.calls.values())

    def take(self, event: SessionEvent) -> None:
        """Move on by one event of the session; those of other turns change nothing."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
            if event.turn_id == self.turn_id and type(event) not in _BY_OTHERS:
                self.worked_until = event.timestamp


def _got_on(story: TurnStory) -> None:
    story.resumed_in_vain = story.resumed_without_step = 0


def _started(story: TurnStory, event: TurnStartedEvent) -> None:
    story.turn_id, story.started_seq = event.turn_id, event.seq
    story.policy, story.principal = event.policy, event.principal
    story.consumes.extend(event.consumes)
    story.worked_since = event.timestamp


def _steered(story: TurnStory, event: TurnSteeredEvent) -> None:
    story.consumes.extend(event.consumes)
    story.is_answered = False


def _resumed(story: TurnStory, event: TurnResumedEvent) -> None:
    story.resumed_in_vain += 1
    story.resumed_without_step += 1
    story.waits_for, story.until, story.decided = [], None, None
    if story.worked_since is not None and story.worked_until is not None:
        story.worked_s += max(0.0, (story.worked_until - story.worked_since).total_seconds())
    story.worked_since = event.timestamp


def _parked(story: TurnStory, event: TurnParkedEvent) -> None:
    _got_on(story)
    story.waits_for, story.until = event.waits_for, event.until
    for call in story.calls.values():
        call.parks = call.starts


def _note(story: TurnStory, event: NoteEvent) -> None:
    if event.kind == HANDED_OVER_NOTE:
        _got_on(story)


def _answer(story: TurnStory, event: AgentMessageEvent) -> None:
    _got_on(story)
    mark = event.provider
    story.answered.append(Answered(event.usage, mark.name if mark else "", mark.model if mark else ""))
    story.is_answered = event.state == "complete"


def _call(story: TurnStory, event: ToolCallEvent) -> None:
    story.is_answered = False
    story.calls[event.tool_call_id] = OpenCall(event)


def _call_started(story: TurnStory, event: ToolStartedEvent) -> None:
    story.resumed_without_step = 0
    call = story.calls.get(event.tool_call_id)
    if call is not None:
        call.starts += 1
        story.used_tools.append(call.call.tool_name)


def _result(story: TurnStory, event: ToolResultEvent) -> None:
    _got_on(story)
    if event.usage is not None:
        story.spent_by_calls.append(event.usage)
    call = story.calls.pop(event.tool_call_id, None)
    if call is not None and event.synthetic == "interrupted":
        story.interrupted.append(call.call)


def _request(story: TurnStory, event: ApprovalRequestEvent) -> None:
    call = story.calls.get(event.tool_call_id)
    if call is not None:
        call.request = event


def _decision(story: TurnStory, event: ApprovalDecisionEvent) -> None:
    story.decided = event
    for call in story.calls.values():
        if call.request is not None and call.request.approval_id == event.approval_id and call.decision is None:
            call.decision = event  # the first one is the one that counts


def strongest_stop(mode: str | None, other: str) -> str:
    """Return which of two wishes to end a turn is met, whichever came first: a crash must not change it."""
    return other if mode is None or _strength(other) > _strength(mode) else mode


def _strength(mode: str) -> int:
    return STOP_MODES.index(mode) if mode in STOP_MODES else -1


def _stop(story: TurnStory, event: StopRequestedEvent) -> None:
    if event.turn_id == story.turn_id:
        story.stop_mode = strongest_stop(story.stop_mode, event.mode)


_HANDLERS: dict[type[SessionEvent], Callable[[TurnStory, Any], None]] = {
    TurnStartedEvent: _started,
    TurnSteeredEvent: _steered,
    TurnResumedEvent: _resumed,
    TurnParkedEvent: _parked,
    NoteEvent: _note,
    AgentMessageEvent: _answer,
    ToolCallEvent: _call,
    ToolStartedEvent: _call_started,
    ToolResultEvent: _result,
    ApprovalRequestEvent: _request,
    ApprovalDecisionEvent: _decision,
    StopRequestedEvent: _stop,
}
_BY_OTHERS = frozenset({ApprovalDecisionEvent, StopRequestedEvent})  # they say nothing of how long a worker worked


def turn_story(events: Iterable[SessionEvent]) -> TurnStory:
    """Return the story that the events from `turn_started` on tell."""
    story = TurnStory()
    for event in events:
        story.take(event)
    return story
