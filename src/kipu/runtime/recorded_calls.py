"""Recorded model calls with what was answered then, chosen by evidence or by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kipu.errors import InputError
from kipu.events.content import text_of
from kipu.events.conversation import AgentMessageEvent, ModelCallEvent, ToolCallEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnStartedEvent, TurnSteeredEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.proposals.evidence import evidence_session
from kipu.proposals.proposal import Evidence
from kipu.runtime.tools.propose import SPEC as PROPOSE
from kipu.runtime.turns.shown_window import call_of_turn

MOST_CALLS = 5


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One model call of the log, and the answer that followed it: its text, its calls, what it used."""

    event: ModelCallEvent
    text: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    usage: dict[str, Any] | None = None

    @property
    def session_id(self) -> str:
        """Return the session it is in."""
        return self.event.session_id

    @property
    def seq(self) -> int:
        """Return its number there."""
        return self.event.seq

    @property
    def turn_id(self) -> str | None:
        """Return the turn it belongs to."""
        return self.event.turn_id


async def calls_of_evidence(
    manager: SessionManager, evidence: Sequence[Evidence], *, principal: Principal, most: int = MOST_CALLS
) -> list[RecordedCall]:
    """Return the model calls that led to each event of the evidence, or that first saw it, oldest first.

    Raises: InputError (none of the evidence is there any more, or no model was called for it).
    """
    found: list[RecordedCall] = []
    for entry in evidence:
        session = await evidence_session(manager, entry.session_id, principal=principal)
        if session is not None:
            events = await session.get_full_history(principal=principal)
            found += [answered(events, call) for call in _calls_for(events, entry.seqs)]
    if not found:
        raise InputError(
            reason="nothing of its evidence can be shown to a model again; choose a turn with --session ID --turn N"
        )
    return found[:most]


async def calls_of_turn(session: Session, turn: str | int, *, most: int = MOST_CALLS) -> list[RecordedCall]:
    """Return the model calls of a turn: the n-th that called a model (from 1, or from the end below 0), or a turn id.

    Raises: InputError: there is no such turn.
    """
    events = await session.get_full_history()
    calls = [event for event in events if isinstance(event, ModelCallEvent)]
    turn_id = call_of_turn(calls, turn).turn_id
    return [answered(events, call) for call in calls if call.turn_id == turn_id][:most]


def answered(events: Sequence[SessionEvent], call: ModelCallEvent) -> RecordedCall:
    """Return a call with the answer that the log has after it, and before the next call."""
    text, usage, calls = "", None, []
    for event in events:
        if event.seq <= call.seq or event.turn_id != call.turn_id:
            continue
        if isinstance(event, ModelCallEvent):
            break
        if isinstance(event, AgentMessageEvent):
            text, usage = text_of(event.content), event.usage
        elif isinstance(event, ToolCallEvent):
            calls.append({"name": event.tool_name, "input": event.tool_input or event.raw or {}})
    return RecordedCall(call, text, tuple(calls), usage)


def _calls_for(events: Sequence[SessionEvent], seqs: Sequence[int]) -> list[ModelCallEvent]:
    calls = [event for event in events if isinstance(event, ModelCallEvent)]
    wanted: dict[int, ModelCallEvent] = {}
    for event in events:
        if event.seq not in seqs or (isinstance(event, ToolCallEvent) and event.tool_name == PROPOSE.name):
            continue
        call = _first_to_see(events, calls, event) if isinstance(event, UserMessageEvent) else _led_to(calls, event)
        if call is not None:
            wanted[call.seq] = call
    return [wanted[seq] for seq in sorted(wanted)]


def _first_to_see(
    events: Sequence[SessionEvent], calls: Sequence[ModelCallEvent], message: SessionEvent
) -> ModelCallEvent | None:
    """Return the first call after the turn took the message: it may have waited."""
    taken = (
        event.seq
        for event in events
        if isinstance(event, TurnStartedEvent | TurnSteeredEvent) and message.seq in event.consumes
    )
    after = next(taken, message.seq)
    return next((call for call in calls if call.seq > after), None)


def _led_to(calls: Sequence[ModelCallEvent], event: SessionEvent) -> ModelCallEvent | None:
    before = [call for call in calls if call.seq < event.seq and call.turn_id == event.turn_id]
    return before[-1] if before else None
