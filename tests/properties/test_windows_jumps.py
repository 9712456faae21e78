"""A jump that only lets go of the beginning leaves what meeting every event again would make (B33, C9)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kipu.context.digest import window_digest
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.rendering import SHAPES
from kipu.context.window import Window
from kipu.events.codec import event_from_fields

_TURNS = ["ask call result answer", "ask answer", "ask call call result result answer", "queue take call result answer"]
_BUSY = "ask call call call result result result"
_ODD = [
    _BUSY,
    *("ask ask", "queue queue take", "queue", "take", "call", "result", "model answer", "again", "note answer"),
    *("ask repeat result", "late", "instruct", "summarise", "consolidate", "pin", "undo", "settle", "steer", "answer"),
    *("memory", "sealed", "picture answer", "call ask result answer", "call answer result"),
    *("cut", "call ask cut result", "ask call result ask call stale", "ask repeat result answer"),
]
_LOGS = st.lists(st.one_of(st.sampled_from(_TURNS), st.sampled_from(_TURNS), st.sampled_from(_ODD)), max_size=14)

_FEW = ["anthropic", "openai_chat"]
_TARGETS = st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=3, unique=True)
"""No more than a window keeps rendered, so that what it kept is what is looked at."""


class _Log:
    """Make the events that words stand for, at even seqs; the odd ones between are free."""

    def __init__(self) -> None:
        self.seq = 0
        self._waiting: list[int] = []
        self._open: list[str] = []
        self._calls: list[str] = []

    def item(self, word: str) -> Item:
        self.seq += 2
        fields = self._fields(word)
        return Item(self.seq, event_from_fields({"seq": self.seq, **fields}), 5)

    def _fields(self, word: str) -> dict[str, Any]:
        if word == "queue":
            self._waiting.append(self.seq)
        if word in {"call", "repeat"}:
            self._calls.append(self._calls[0] if word == "repeat" and self._calls else f"call_{self.seq}")
            self._open.append(self._calls[-1])
        call_id = self._calls[-1] if self._calls else "none"
        taken, settled = list(self._waiting), self._waiting[:1]
        if word in {"take", "steer"}:
            self._waiting.clear()
        if word == "stale":
            call_id = self._calls[-2] if len(self._calls) > 1 else "none"
        if word == "result" and self._open:
            call_id = self._open.pop(0)
        picture = [{"type": "media", "media_type": "image/png", "blob": "b" * 64, "size": 9}]
        mark = {"name": "p", "model": "m", "opaque": {"type": "thinking", "thinking": "h", "signature": "c2ln"}}
        events: dict[str, dict[str, Any]] = {
            "ask": {"event_type": "user_message", "content": f"question {self.seq}"},
            "queue": {"event_type": "user_message", "content": f"waiting {self.seq}", "queued": True},
            "take": {"event_type": "turn_started", "turn_id": f"t{self.seq}", "consumes": taken},
            "steer": {"event_type": "turn_steered", "turn_id": "t", "consumes": [*taken, 2]},
            "call": {"event_type": "tool_call", "tool_name": "bash", "tool_call_id": call_id, "tool_input": {"a": [1]}},
            "repeat": {"event_type": "tool_call", "tool_name": "bash", "tool_call_id": call_id},
            "result": {"event_type": "tool_result", "tool_call_id": call_id, "result": {"b": [2]}},
            "again": {"event_type": "tool_result", "tool_call_id": call_id, "result": "again"},
            "stale": {"event_type": "tool_result", "tool_call_id": call_id, "result": "of the call before"},
            "late": {"event_type": "tool_result", "tool_call_id": f"early_{self.seq}", "result": "no call"},
            "answer": {"event_type": "agent_message", "content": f"answer {self.seq}"},
            "sealed": {"event_type": "agent_message", "content": "sealed", "provider": mark},
            "picture": {"event_type": "user_message", "content": picture},
            "model": {"event_type": "model_call", "model": "m", "window": {"from": 1}},
            "note": {"event_type": "note", "kind": "app", "data": {}},
            "instruct": {"event_type": "instruction", "content": f"be {self.seq}"},
            "summarise": {
                "event_type": "compaction",
                "from_seq": 1,
                "to_seq": max(self.seq - 4, 0),
                "first_kept_seq": max(self.seq - 4, 0),
                "summary": "s",
            },
            "consolidate": {"event_type": "consolidation", "to_seq": max(self.seq - 4, 0)},
            "pin": {"event_type": "event_pinned", "seqs": [max(self.seq - 6, 2)], "on": True},
            "undo": {"event_type": "rewind", "to_seq": max(self.seq - 8, 0)},
            "settle": {"event_type": "message_settled", "seqs": settled, "reason": "cancelled"},
            "memory": {"event_type": "memory_recalled", "facts": [{"text": "likes tea"}]},
        }
        return events[word]


def _meet_all_again(window: Window) -> None:
    """Hand over an event that comes out of order and is shown to nobody: the window builds itself from all it has."""
    seq = window.last_seq - 1
    window.extend([Item(seq, event_from_fields({"seq": seq, "event_type": "from_the_future"}), 0)])


def _state(window: Window, targets: list[str]) -> list[Any]:
    shown = [window.messages(target, provider="p", model="m") for target in targets]
    digest = window.digest(provider="p", model="m")
    assert digest == window_digest(window.messages(provider="p", model="m").messages)
    return [digest, shown, window.overflow(), window.tokens, window.message_count, window.missing, window.start_seq]


@given(words=_LOGS, ladder=st.sampled_from(["normal", "normal", "strict"]), warm=st.booleans(), targets=_TARGETS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(words=[_TURNS[0]] * 12, ladder="normal", warm=True, targets=_FEW)
@example(words=[_TURNS[3]] * 12, ladder="normal", warm=True, targets=_FEW)
@example(
    words=[_TURNS[0], _TURNS[0], "ask answer", "ask repeat result answer"], ladder="normal", warm=True, targets=_FEW
)
@example(words=[_TURNS[0], "ask repeat result answer", *[_TURNS[0]] * 3], ladder="normal", warm=True, targets=_FEW)
@example(
    words=["queue take", _TURNS[0], _TURNS[0], "ask steer call result answer"],
    ladder="normal",
    warm=False,
    targets=_FEW,
)
@example(words=[_TURNS[0], "ask answer", _BUSY, "ask call stale result"], ladder="normal", warm=False, targets=_FEW)
@example(words=[_TURNS[0], "ask call ask cut result"], ladder="normal", warm=False, targets=_FEW)
def test_a_jump_equals_meeting_every_kept_event_again(
    words: list[str], ladder: Any, warm: bool, targets: list[str]
) -> None:
    """After a jump, and for everything that comes later, a window is what building it anew would make it (B33, C9)."""
    policy = WindowPolicy(max_tokens=10_000, max_messages=12, low_water=0.6, ladder=ladder)
    quick, plain = Window(policy), Window(policy)
    log = _Log()
    for word in " ".join(words).split():
        if word == "cut":  # whoever holds a window may let it start where nothing in it asked for that
            if not log.seq:
                continue
            quick.jump(log.seq)
            plain.jump(log.seq)
            _meet_all_again(plain)
            continue
        item = log.item(word)
        quick.extend([item])
        plain.extend([item])
        start = quick.overflow()
        assert plain.overflow() == start
        if start is not None:
            quick.jump(start)
            plain.jump(start)
            _meet_all_again(plain)
        if warm or start is not None:
            assert _state(quick, targets) == _state(plain, targets)
    assert _state(quick, targets) == _state(plain, targets)
