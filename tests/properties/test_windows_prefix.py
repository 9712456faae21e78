"""Windows grow at their end, so that provider caches hit (C9), and stay what they were for whoever reads them (B34)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import fit
from kipu.context.rendering import SHAPES
from kipu.context.window import Window
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnStartedEvent

BUDGET = 100_000


class _Log:
    """Append events to a window, each with its cost."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.seq = 0

    def add(self, event: SessionEvent, tokens: int) -> int:
        self.seq += 1
        self.window.extend([Item(self.seq, event.model_copy(update={"seq": self.seq}), tokens)])
        fit(self.window)
        return self.seq


class _PromptCache:
    """Be a provider that keeps the last prompt, and count how much of each new one it knows."""

    def __init__(self) -> None:
        self.prompt = self.cached = 0
        self._messages: list[Any] = []
        self._sizes: list[int] = []

    def call(self, messages: list[Any]) -> None:
        same = 0
        while same < min(len(messages), len(self._messages)) and messages[same] == self._messages[same]:
            same += 1
        self._sizes[same:] = [len(repr(message)) for message in messages[same:]]
        self._messages = messages
        self.cached += sum(self._sizes[:same])
        self.prompt += sum(self._sizes)


def _text(what: str, tokens: int) -> str:
    return what.ljust(tokens * 4, "x")


def _run_turn(log: _Log, rng: random.Random, *, turn: int, cost: int, state: dict[str, list[Any]]) -> Iterator[None]:
    """Append one turn, with messages that wait, that fall between, and results that come late; stop before each call."""
    turn_id = f"t{turn}"
    asked = log.add(UserMessageEvent(content=_text("question", cost // 3), queued=True), cost // 3)
    log.add(TurnStartedEvent(turn_id=turn_id, consumes=[*state["waiting"], asked]), 0)
    state["waiting"].clear()
    for step in range(rng.choice([0, 1, 2])):
        yield
        call_id = f"call_{turn}_{step}"
        given = {"cmd": _text("", cost // 6)}
        log.add(ToolCallEvent(tool_name="bash", tool_call_id=call_id, tool_input=given, turn_id=turn_id), cost // 6)
        if rng.random() < 0.2:
            log.add(UserMessageEvent(content=_text("by the way", cost // 6)), cost // 6)
        if rng.random() < 0.1:
            state["late"].append(call_id)
        else:
            log.add(ToolResultEvent(tool_call_id=call_id, result=_text("r", cost // 2), turn_id=turn_id), cost // 2)
    yield
    log.add(AgentMessageEvent(content=_text(f"answer {turn}", cost // 3), turn_id=turn_id), cost // 3)
    if rng.random() < 0.2:
        waiting = UserMessageEvent(content=_text("while you worked", cost // 6), queued=True)
        state["waiting"].append(log.add(waiting, cost // 6))
    if state["late"] and rng.random() < 0.3:
        log.add(ToolResultEvent(tool_call_id=state["late"].pop(), result=_text("late", cost // 6)), cost // 6)


@pytest.mark.parametrize(("target", "cost"), [("openai_chat", 300), ("neutral", 3_600), ("anthropic", 3_600)])
def test_windows_share_nine_tenths_of_their_tokens_with_the_call_before(target: str, cost: int) -> None:
    """Over 1 000 turns whose calls each add at most 3 % of the budget, 90 % of prompt tokens are a cached prefix (C9)."""
    rng = random.Random(5)
    log = _Log(Window(WindowPolicy(max_tokens=BUDGET)))
    cache = _PromptCache()
    state: dict[str, list[Any]] = {"waiting": [], "late": []}
    for turn in range(1_000):
        for _ in _run_turn(log, rng, turn=turn, cost=cost, state=state):
            cache.call(log.window.messages(target).messages)
    assert log.window.start_seq > 0
    assert cache.cached / cache.prompt >= 0.9, cache.cached / cache.prompt


@pytest.mark.parametrize("target", sorted(SHAPES))
def test_windows_are_copies(target: str) -> None:
    """Whatever a caller does to a window, the next one is as it would have been (B34, B38)."""
    log = _Log(Window(WindowPolicy()))
    events: list[SessionEvent] = [
        UserMessageEvent(content="question"),
        AgentMessageEvent(content="I look"),
        ToolCallEvent(tool_name="bash", tool_call_id="A", tool_input={"cmd": {"deep": ["ls"]}}),
        ToolResultEvent(tool_call_id="A", result="r"),
        AgentMessageEvent(content="answer"),
    ]
    for event in events:
        log.add(event, 10)
    before = repr(log.window.messages(target).messages)
    _spoil(log.window.messages(target).messages)
    assert repr(log.window.messages(target).messages) == before


def _spoil(value: object) -> None:
    if isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoilt")
    elif isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = True
