"""What must hold of every session after a soak, read from its log alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kipu.events.boundary import NoteEvent, RewindEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    MessageSettledEvent,
    StopRequestedEvent,
    TurnFinishedEvent,
    TurnResumedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)
from kipu.manager.session import Session
from kipu.ports.owner import Owner
from kipu.session.mailbox import URGENT_MODES, Arrival, arrival_of
from kipu.testing.validators import validate

BY = re.compile(r"\[by (\d+)\]")
TARGETS = ("neutral", "openai_chat", "openai_responses", "anthropic", "gemini")


@dataclass
class TurnRecord:
    """One turn as the log tells it."""

    started: TurnStartedEvent
    consumed: list[int]
    steered: int = 0
    answers: set[int] = field(default_factory=set)
    stops: list[StopRequestedEvent] = field(default_factory=list)
    finished: TurnFinishedEvent | None = None
    undone: bool = False
    refused_undoing: bool = False


class SoakLog:
    """One session's log, taken apart; `problems` says what is wrong with it.

    At the end of everything nothing waits and no turn is open; before it, `waiting` and `open_turn` are what the head says.
    """

    may_rewind = False  # whether people undo turns by themselves

    def __init__(
        self, events: Sequence[SessionEvent], *, waiting: Sequence[int] = (), open_turn: str | None = None
    ) -> None:
        self.problems: list[str] = []
        self.messages: dict[int, Arrival] = {}
        self.turns: list[TurnRecord] = []
        self.settled: dict[int, list[str]] = {}
        self.calls: dict[str, ToolCallEvent] = {}
        self.results: dict[str, list[ToolResultEvent]] = {}
        self._waiting, self._open_turn = set(waiting), open_turn
        self._open: TurnRecord | None = None
        self._newest_answer = 0
        self._token = 0
        self._holder: str | None = None  # the process that has the turn
        self._check_numbers([event.seq for event in events])
        for event in events:
            self._take(event)
            self._take_epoch(event)
        self._check_messages()
        self._check_turns()
        self._check_order()
        self._check_calls()

    def say(self, problem: str) -> None:
        self.problems.append(problem)

    def _take(self, event: SessionEvent) -> None:
        match event:
            case UserMessageEvent():
                self.messages[event.seq] = arrival_of(event)
            case TurnStartedEvent():
                if self._open is not None:
                    self.say(f"{event.seq}: a turn began while {self._open.started.turn_id} was open")
                self._open = TurnRecord(event, list(event.consumes))
                self.turns.append(self._open)
            case TurnSteeredEvent():
                self._check_steer(event)
            case MessageSettledEvent():
                for seq in event.seqs:
                    self.settled.setdefault(seq, []).append(event.reason)
            case StopRequestedEvent():
                for turn in self.turns:
                    if turn.started.turn_id == event.turn_id and turn.finished is None:
                        turn.stops.append(event)
            case TurnFinishedEvent():
                self._finish(event)
            case _:
                self._take_undoing(event)
                self._take_step(event)

    def _check_numbers(self, seqs: Sequence[int]) -> None:
        if list(seqs) != list(range(1, len(seqs) + 1)):
            self.say(f"the numbers are not 1 to {len(seqs)}")

    def _take_epoch(self, event: SessionEvent) -> None:
        """Check that leases follow one another, and that whoever has lost one writes nothing behind the next."""
        if isinstance(event, (TurnStartedEvent, TurnResumedEvent)):
            if (event.token or 0) <= self._token:
                self.say(f"{event.seq}: a turn under lease {event.token} after one under {self._token}")
            owner = Owner.parse(event.worker or "")
            self._token, self._holder = event.token or 0, None if owner is None else str(owner.pid)
        if isinstance(event, (AgentMessageEvent, ToolResultEvent)):
            said = event.content if isinstance(event, AgentMessageEvent) else event.result
            strangers = set(BY.findall(str(said))) - {self._holder}
            if strangers:
                self.say(f"{event.seq}: {event.event_type} of {strangers}, but {self._holder} had the turn")

    def _take_undoing(self, event: SessionEvent) -> None:
        match event:
            case RewindEvent():
                for turn in self.turns:
                    turn.undone = turn.undone or turn.started.seq > event.to_seq
            case NoteEvent() if event.kind == "kipu.rollback_refused":
                for turn in self.turns:
                    if turn.started.turn_id == event.data.get("turn_id"):
                        turn.refused_undoing = True

    def _take_step(self, event: SessionEvent) -> None:
        if isinstance(event, ToolCallEvent):
            self.calls[event.tool_call_id] = event
            if self._open is not None and self._open.answers:
                self._open.answers.discard(self._newest_answer)  # it was no answer, it asked for more
        elif isinstance(event, ToolResultEvent):
            self.results.setdefault(event.tool_call_id, []).append(event)
        elif isinstance(event, AgentMessageEvent) and event.state == "complete" and self._open is not None:
            self._newest_answer = event.seq
            self._open.answers.add(event.seq)

    def _check_steer(self, event: TurnSteeredEvent) -> None:
        turn = self._open
        if turn is None or turn.started.turn_id != event.turn_id:
            self.say(f"{event.seq}: messages joined a turn that is not open")
            return
        open_calls = [call_id for call_id in self.calls if call_id not in self.results]
        if open_calls:
            self.say(f"{event.seq}: messages joined between a call and its result")
        turn.steered += 1
        for seq in event.consumes:
            first = self.messages[turn.consumed[0]]
            if self.messages[seq].policy.mode != "steer" or self.messages[seq].author != first.author:
                self.say(f"{event.seq}: message {seq} may not steer")
        turn.consumed += event.consumes

    def _finish(self, event: TurnFinishedEvent) -> None:
        turn = self._open
        if turn is None or turn.started.turn_id != event.turn_id:
            self.say(f"{event.seq}: a turn ended that was not open")
            return
        turn.finished, self._open = event, None

    def _check_messages(self) -> None:
        consumed = Counter(seq for turn in self.turns for seq in turn.consumed)
        undone = {seq for turn in self.turns if turn.undone for seq in turn.consumed}
        for seq in self.messages:
            reasons = self.settled.get(seq, [])
            if seq in undone:
                if reasons != ["superseded"] or consumed[seq] != 1:
                    self.say(f"message {seq} of an undone turn: consumed {consumed[seq]} times, settled {reasons}")
            elif consumed[seq] + len(reasons) != (0 if seq in self._waiting else 1):
                self.say(f"message {seq}: consumed {consumed[seq]} times, settled {reasons}")

    def _check_turns(self) -> None:
        for turn in self.turns:
            name = turn.started.turn_id
            if turn.finished is None:
                if name != self._open_turn:
                    self.say(f"{name} is still open")
                continue
            if turn.finished.outcome == "completed" and not turn.answers:
                self.say(f"{name} completed without an answer")
            if turn.finished.outcome == "failed":
                self.say(f"{name} failed: {turn.finished.error}")
            if len(turn.answers) > 1 + turn.steered:
                self.say(f"{name} was answered {len(turn.answers)} times")
            # Who asks for most says how, whenever that came while the turn was open.
            wanted = any(stop.mode.startswith("rollback") for stop in turn.stops)
            if wanted and not turn.undone and not turn.refused_undoing:
                self.say(f"{name} ({turn.finished.outcome}) was to be rolled back and was not")
            if turn.undone and not wanted and not self.may_rewind:
                self.say(f"{name} was rolled back, and nobody asked")

    def _check_order(self) -> None:
        for urgent in (False, True):
            firsts = [
                turn.consumed[0]
                for turn in self.turns
                if (self.messages[turn.consumed[0]].policy.mode in URGENT_MODES) is urgent
            ]
            if firsts != sorted(firsts):
                self.say(f"turns out of order: {firsts}")
        for turn in self.turns:
            began = [self.messages[seq] for seq in turn.started.consumes]
            if len(began) > 1:
                if {entry.policy.mode for entry in began} != {"collect"}:
                    self.say(f"{turn.started.turn_id} took several messages that were not to be collected")
                if len({entry.group for entry in began}) != 1:
                    self.say(f"{turn.started.turn_id} took messages of several senders")

    def _check_calls(self) -> None:
        for call_id in self.calls:
            count = len(self.results.get(call_id, ()))
            if count != 1 and (count or self._open_turn is None):
                self.say(f"call {call_id} has {count} results")
        for call_id in self.results.keys() - self.calls.keys():
            self.say(f"result of an unknown call {call_id}")

    def check_effects(self, ran: Mapping[str, int]) -> None:
        """Compare what ran with what the log says of it."""
        for call_id, call in self.calls.items():
            times = ran.get(call_id, 0)
            most = 3 if call.tool_name in ("read", "look") else 1
            if times > most:
                self.say(f"{call.tool_name} {call_id} ran {times} times")
            for result in self.results.get(call_id, ()):
                if not result.is_error and not times:
                    self.say(f"{call.tool_name} {call_id} has a result and did not run")


async def windows_refused(session: Session) -> list[str]:
    """Return what the validators of all targets say against the session's window."""
    found: list[str] = []
    for target in TARGETS:
        rendering: Any = await session.render(target)
        if not rendering.messages:
            continue
        violations = validate(target, rendering.payload, may_end_with_model=True)
        found += [f"{target}: {violation}" for violation in violations]
    return found
