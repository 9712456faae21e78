"""The token estimate errs little, and not downwards where it matters (B36)."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.context.tokens import EstimateCounter, event_tokens
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.conversation import ToolCallEvent, ToolResultEvent, UserMessageEvent

# Counted once with o200k.
_NOISE = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(64))
_ROWS = [{"id": 91_000_000 + 7919 * n, "user": f"u{n}", "ok": n % 2 == 0, "latency_ms": n * 1.375} for n in range(60)]
_LINES = [
    f"2026-11-29T12:{n:02d}:07.{n * 7919 % 1000:03d}Z INFO [worker-{n}] GET /api/v1/items/{n * 7919} 200"
    for n in range(60)
]
SAMPLES = {
    "english": (
        "The window of a model call shows only what the log has made true, and nothing rewrites the log. " * 20,
        441,
    ),
    "json": (json.dumps(_ROWS), 1801),
    "logs": ("\n".join(_LINES), 1978),
    "chinese": ("会话的历史只追加，不改写；窗口是事件的纯函数，任何模型都能接受它。" * 20, 480),
    "base64": (base64.b64encode(_NOISE).decode(), 1860),
}


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_estimate_stays_near_the_real_count(kind: str) -> None:
    """The estimate is within a quarter of the real count, and under it by at most 5 % outside English (facts.md)."""
    text, real = SAMPLES[kind]
    error = EstimateCounter().count(text) / real - 1
    assert (-0.10 if kind == "english" else -0.05) <= error <= 0.25


_WEIGHTS = {"lower": 0.105, "upper": 0.0, "digit": 0.664, "space": 0.549, "break": 1.23, "mark": 0.902}
_WIDE = {2: 0.179, 3: 0.719, 4: 2.5}
_PAIRS = {
    ("lower", "upper"): 2.028,
    ("lower", "digit"): 0.841,
    ("upper", "upper"): 1.208,
    ("mark", "mark"): -1.061,
    ("space", "space"): -0.994,
}


def _kind(char: str) -> str:
    if not char.isascii():
        return "wide"
    found = {"lower": char.islower(), "upper": char.isupper(), "digit": char.isdigit(), "space": char == " "}
    found["break"] = char in "\n\r\t"
    return next((kind for kind, is_it in found.items() if is_it), "mark")


def _plain_estimate(text: str) -> float:
    kinds = [_kind(char) for char in text]
    total = sum(
        _WIDE[len(char.encode())] if kind == "wide" else _WEIGHTS[kind] for char, kind in zip(text, kinds, strict=True)
    )
    for pair, weight in _PAIRS.items():
        index = 0
        while index < len(kinds) - 1:
            found = (kinds[index], kinds[index + 1]) == pair
            total += weight if found else 0.0
            index += 2 if found else 1
    return max(1.0, total, len(text.encode()) // 32)


@given(
    st.lists(st.sampled_from(["ab", "Ab", "AB", "a1", "1", "  ", " ", "\n", "{}", "é", "会", "🙂", "x" * 90])).map(
        "".join
    )
)
def test_estimate_is_the_sum_of_kinds_and_meetings(text: str) -> None:
    """Counting only what a text can have gives what weighing each character and each meeting of two gives (B36)."""
    if text:
        assert abs(EstimateCounter().count(text) - _plain_estimate(text)) <= 0.5 + 1e-6


def test_events_that_a_model_is_not_shown_cost_nothing() -> None:
    """Tokens are counted once per event, over what the window shows of it (C10)."""
    counter = EstimateCounter()
    assert event_tokens(MetadataChangedEvent(set={"title": "long " * 100}), counter) == 0
    assert event_tokens(UserMessageEvent(content=""), counter) > 0
    small = event_tokens(ToolResultEvent(tool_call_id="A", result="x"), counter)
    assert event_tokens(ToolResultEvent(tool_call_id="A", result="word " * 1000), counter) > small + 900
    assert event_tokens(ToolCallEvent(tool_name="t", tool_call_id="A", raw="{" * 50), counter) > 10


def test_no_text_is_free() -> None:
    """Any text costs at least one token, and an empty one none."""
    counter = EstimateCounter()
    assert counter.count("") == 0
    assert counter.count(" ") >= 1
    assert counter.count("\ud83d") >= 1
    assert counter.name == "estimate-1"
