"""Whatever a session lived through, whoever opens it next is shown what it showed (B33, B36, C6, C11, A2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kipu.context.policy import WindowPolicy
from kipu.context.rendering import SHAPES
from kipu.errors import InputError
from kipu.events.boundary import CompactionEvent, ConsolidationEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    MemoryRecalledEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnSteeredEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.runtime.turns.shown_window import model_calls, replay, window_record
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness
from kipu.stores.memory import MemoryStore
from kipu.testing.validators import validate

TARGETS = sorted(SHAPES)
SMALL = {
    "messages": WindowPolicy(max_tokens=100_000, max_messages=12),
    "no room": WindowPolicy(max_tokens=100_000, max_messages=6, low_water=1.0),
    "tokens": WindowPolicy(max_tokens=600),
    "few tokens": WindowPolicy(max_tokens=300, max_messages=8),
    "media": WindowPolicy(max_tokens=2_000, max_messages=30, media_max_count=3),
}
PICTURE = {
    "type": "media",
    "media_type": "image/png",
    "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABXvMqOgAAAABJRU5ErkJggg==",
}
SIZES = (1, 1, 3, 10, 40, 120, 400)
STEPS = [
    *["exchange"] * 5,
    *("user", "answer", "call", "calls", "result", "queue", "queue", "turn", "turn", "end", "end", "steer", "settle"),
    *("model", "beside", "picture", "pin", "pin two", "unpin", "rewind", "rewind to", "fork", "compact", "consolidate"),
    *("instruct", "memory", "metadata", "batch", "other", "other pins"),
]


class Life:
    """One session, driven a step at a time; each step may be refused, and then it changes nothing."""

    def __init__(self, policy: WindowPolicy) -> None:
        self.policy = policy
        self.store = MemoryStore(clock=SystemClock(), liveness=SystemLiveness())
        self.processes = 0
        self.turn: Turn | None = None
        self.calls: list[str] = []
        self.number = 0
        self.session: Session

    async def manager(self) -> SessionManager:
        """Return another process's manager over the same store."""
        self.processes += 1
        owner = f"host/boot/{self.processes}/1/w"
        return SessionManager(self.store, clock=SystemClock(), entropy=SystemEntropy(), owner=owner, policy=self.policy)

    async def begin(self) -> None:
        """Begin the session."""
        self.session = await (await self.manager()).get_or_create("cli:p")

    async def step(self, name: str, pick: int) -> None:
        """Do one step; `pick` says which of the events, and how much."""
        self.number += 1
        said = self._said(name, pick)
        if said:
            await (self.turn.add_events(said) if self.turn is not None else self.session.add_events(said))
            return
        doing: dict[str, Callable[[int], Awaitable[object]]] = {
            "queue": lambda pick: self.session.add_event(self._words("waiting", pick, queued=True)),
            "beside": lambda pick: self.session.add_event(self._words("beside", pick)),
            "turn": self._begin_turn,
            "end": self._end_turn,
            "settle": self._settle,
            "pin": lambda pick: self.session.pin(self._seq(pick)),
            "pin two": lambda pick: self.session.pin(self._seq(pick), self._seq(pick // 7)),
            "unpin": lambda pick: self.session.pin((self.session.head.pins or (1,))[0], on=False),
            "rewind": lambda pick: self.session.rewind(turns=1 + pick % 3),
            "rewind to": lambda pick: self.session.rewind(self._seq(pick)),
            "fork": self._fork,
            "metadata": lambda pick: self.session.set_metadata(number=pick),
            "other": self._other,
            "other pins": self._other_pins,
        }
        if name in doing:
            await doing[name](pick)

    def _words(self, text: str, pick: int, *, queued: bool = False) -> UserMessageEvent:
        return UserMessageEvent(content=f"{text} {self.number} " + "w " * SIZES[pick % 7], queued=queued)

    def _seq(self, pick: int) -> int:
        last = self.session.history.last_seq
        return max(1, last - pick % 40) if pick % 3 else 1 + pick % last

    def _said(self, name: str, pick: int) -> list[SessionEvent]:
        number, size = self.number, SIZES[pick % 7]
        call = ToolCallEvent(tool_name="t", tool_call_id=f"c{number}", tool_input={"n": number})
        if name == "result":
            call_id = self._open_call(pick)
            return [ToolResultEvent(tool_call_id=call_id, result="x " * size, pinned=pick % 11 == 0)]
        if name in {"call", "calls"}:
            self.calls += [f"c{number}", f"d{number}"][: 1 if name == "call" else 2]
        second = ToolCallEvent(tool_name="t", tool_call_id=f"d{number}", tool_input={})
        answered = ToolResultEvent(tool_call_id=call.tool_call_id, result="x " * size, pinned=pick % 11 == 0)
        answer = AgentMessageEvent(content=f"answer {number} " + "w " * size)
        waiting = list(self.session.head.waiting[: 1 + pick % 2])
        many: list[SessionEvent] = [self._words(f"part {part}", 0) for part in range(4 + pick % 16)]
        plain: dict[str, list[SessionEvent]] = {
            "exchange": [self._words("ask", 0), call, answered, AgentMessageEvent(content=f"done {number}")],
            "user": [self._words("ask", pick)],
            "answer": [answer],
            "call": [call],
            "calls": [answer, call, second],
            "picture": [UserMessageEvent(content=[{"type": "text", "text": "see"}, *[PICTURE] * (1 + pick % 3)])],  # type: ignore[list-item]
            "instruct": [InstructionEvent(content=f"be {number}")],
            "memory": [MemoryRecalledEvent(facts=[{"text": f"fact {number}"}])],
            "consolidate": [ConsolidationEvent(to_seq=self._seq(pick))],
            "batch": many,
        }
        if name in plain:
            return plain[name]
        if name == "steer" and self.turn is not None and waiting:
            return [TurnSteeredEvent(turn_id=self.turn.id, consumes=waiting)]
        if name == "compact":
            return self._summary()
        return self._model_call() if name == "model" and self.turn is not None else []

    def _open_call(self, pick: int) -> str:
        """Return a call that the window holds: a result that comes when it does not is out of all order, and shown to nobody."""
        history = self.session.history
        gone = {item.event.tool_call_id for item in history.items if isinstance(item.event, ToolResultEvent)}
        start = history.window.start_seq
        held = {
            item.event.tool_call_id
            for item in history.items
            if isinstance(item.event, ToolCallEvent) and item.seq >= start
        }
        calls = [call for call in self.calls if call in held - gone]
        return calls[pick % len(calls)] if calls else "none"

    def _summary(self) -> list[SessionEvent]:
        window = self.session.history.window
        kept = window.cut(keep_share=0.3)
        if kept is None:
            return []
        first = max(window.start_seq, 1)
        return [CompactionEvent(from_seq=first, to_seq=kept - 1, first_kept_seq=kept, summary=f"so far {self.number}")]

    def _model_call(self) -> list[SessionEvent]:
        history = self.session.history
        rendering = history.window.messages(provider="p", model="m", shared=True)
        return [ModelCallEvent(model="m", window=window_record(rendering, history, provider="p", model="m"))]

    async def _begin_turn(self, pick: int) -> None:
        if self.turn is None:
            turn = self.session.turn(take=None if pick % 3 else 1)
            await turn.__aenter__()
            self.turn = turn

    async def _end_turn(self, pick: int) -> None:
        turn, self.turn = self.turn, None
        if turn is not None:
            await turn.__aexit__(None, None, None)

    async def _settle(self, pick: int) -> None:
        waiting = self.session.head.waiting
        if waiting:
            gone = MessageSettledEvent(seqs=[waiting[pick % len(waiting)]], reason="cancelled")
            await self.session.add_event(gone)

    async def _fork(self, pick: int) -> None:
        if self.turn is None:
            self.session = await self.session.fork(self._seq(pick) if pick % 2 else None)
            self.calls = []

    async def _other(self, pick: int) -> None:
        other = await (await self.manager()).open(self.session.session_id)
        await other.add_event(self._words("from elsewhere", 0, queued=self.turn is not None))

    async def _other_pins(self, pick: int) -> None:
        await (await (await self.manager()).open(self.session.session_id)).pin(self._seq(pick))

    async def check(self) -> None:
        """Compare with what another process is shown, and let every target's validator judge it."""
        again = await (await self.manager()).open(self.session.session_id)
        await self.session.refresh()  # within a turn of its own it reads what others wrote with its next append
        for target in TARGETS:
            live = await self.session.render(target, provider="p", model="m")
            assert (await again.render(target, provider="p", model="m")).messages == live.messages
            if any(message.get("role") != "system" for message in live.messages):
                assert validate(target, live.payload, may_end_with_model=True) == []

    async def check_calls(self) -> None:
        """Render every recorded model call again."""
        for call in await model_calls(self.session):
            assert (await replay(self.session, call, store=self.store)).matches


async def live(steps: list[tuple[str, int]], policy: WindowPolicy, *, every: int) -> None:
    life = Life(policy)
    await life.begin()
    try:
        for index, (name, pick) in enumerate(steps):
            with suppress(InputError):  # such as a rewind to within a turn
                await life.step(name, pick)
            if index % every == 0:
                await life.check()
        await life.check()
        await life.check_calls()
    finally:
        await life.step("end", 0)


AFTER_AN_UNDONE_INSTRUCTION = [
    *[("exchange", 1), ("instruct", 0), ("rewind to", 494700), ("turn", 6)],
    *[("exchange", 1), ("exchange", 1), ("exchange", 1), ("result", 0), ("model", 0), ("user", 0)],
]
UNPINNED_SINCE_A_JUMP = [
    ("batch", 0),
    ("answer", 5),
    ("instruct", 0),
    ("other pins", 249825),
    ("calls", 12),
    ("unpin", 0),
]
PINNED_BEFORE_ANYBODY_SPOKE = [
    (name, 0) for name in ("call", "beside", "result", "exchange", "instruct", "exchange", "exchange")
]
PINNED_LONG_AFTER_ITS_CALL = [(name, 0) for name in ("call", *["beside"] * 4, "result", *["beside"] * 9)]

_PICKS = st.one_of(st.integers(0, 12), st.integers(0, 10**6))
_LIVES = st.lists(st.tuples(st.sampled_from(STEPS), _PICKS), max_size=50)
_POLICIES = st.sampled_from(sorted(SMALL))


@given(steps=_LIVES, policy=_POLICIES, every=st.sampled_from([1, 4, 50]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example(steps=[("exchange", 1), ("exchange", 1), ("compact", 0)], policy="tokens", every=1)
@example(steps=AFTER_AN_UNDONE_INSTRUCTION, policy="no room", every=1)
@example(steps=UNPINNED_SINCE_A_JUMP, policy="no room", every=1)
@example(steps=PINNED_BEFORE_ANYBODY_SPOKE, policy="few tokens", every=1)
@example(steps=PINNED_LONG_AFTER_ITS_CALL, policy="no room", every=1)
def test_a_session_is_shown_alike_to_whoever_opens_it(steps: list[tuple[str, int]], policy: str, every: int) -> None:
    """At any moment of any life, the window of a second process over the same store is the live one, and valid (B33, C7, C6)."""
    asyncio.run(live(steps, SMALL[policy], every=every))


@pytest.mark.long
@given(steps=_LIVES, policy=_POLICIES, every=st.sampled_from([1, 4, 50]))
@settings(max_examples=3_000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_thousands_of_sessions_are_shown_alike(steps: list[tuple[str, int]], policy: str, every: int) -> None:
    """The same of thousands of lives (B33, C7, C6)."""
    asyncio.run(live(steps, SMALL[policy], every=every))
