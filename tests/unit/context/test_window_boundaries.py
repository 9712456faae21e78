"""Jumps, pins, instructions and media of a live window (B31–B36, C6, C9)."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from kipu.context.canonical import canonical
from kipu.context.digest import replay, window_digest
from kipu.context.item import Item
from kipu.context.policy import LADDER, WindowPolicy
from kipu.context.render import build_window, fit
from kipu.context.rendering import RENDERER_VERSION
from kipu.context.window import Window
from kipu.errors import InvalidQueryError
from kipu.events.boundary import CompactionEvent, ConsolidationEvent, EventPinnedEvent
from kipu.events.content import MediaPart, TextPart
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
from kipu.events.turn import MessageSettledEvent, TurnStartedEvent, TurnSteeredEvent
from kipu.testing.validators import validate

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABXvMqOgAAAABJRU5ErkJggg=="
)


class Log:
    """Append events to a live window, ten tokens each unless said otherwise."""

    def __init__(self, **policy: Any) -> None:
        self.window = Window(WindowPolicy(**policy))
        self.items: list[Item] = []

    def add(self, *events: SessionEvent, tokens: int = 10) -> int:
        """Return the seq of the last event added."""
        for event in events:
            seq = len(self.items) + 1
            self.items.append(Item(seq, event.model_copy(update={"seq": seq}), tokens))
            self.window.extend(self.items[-1:])
        return len(self.items)

    def turn(self, number: int) -> None:
        """Append a question, a call with its result, and an answer: 40 tokens."""
        self.add(
            UserMessageEvent(content=f"question {number}"),
            ToolCallEvent(tool_name="bash", tool_call_id=f"c{number}"),
            ToolResultEvent(tool_call_id=f"c{number}", result=f"result {number}"),
            AgentMessageEvent(content=f"answer {number}"),
        )

    def texts(self) -> list[str]:
        """Return every text of the window, in order."""
        found: list[str] = []
        for message in self.window.messages().messages:
            for block in message["content"]:
                inner = block.get("content", [block])
                found += [part["text"] for part in inner if part["type"] == "text"]
        return found


def test_overflow_jumps_to_a_user_message_at_low_water() -> None:
    """A window over its tokens starts at the first user message with which 60 % are in use (A32, C9)."""
    log = Log(max_tokens=400)
    for number in range(10):
        log.turn(number)
    assert log.window.overflow() is None
    log.turn(10)
    start = log.window.overflow()
    assert start == 4 * 5 + 1
    log.window.jump(start)
    assert (log.window.start_seq, log.window.tokens, log.window.overflow()) == (21, 240, None)
    assert log.texts()[0] == "question 5"


def test_message_counts_are_a_bound_too() -> None:
    """The second limit is the number of messages, every result counted (A30)."""
    log = Log(max_messages=20)
    for number in range(6):
        log.turn(number)
    fit(log.window)
    assert log.window.message_count == 12


def test_a_new_instruction_wants_a_jump_once_the_model_was_shown_one() -> None:
    """An instruction shows at once while nothing was shown, later with a jump in place (C9)."""
    log = Log()
    log.add(InstructionEvent(content="be brief"), UserMessageEvent(content="hi"), InstructionEvent(content="be kind"))
    assert log.texts() == ["be kind", "hi"]
    log.add(AgentMessageEvent(content="hello"), InstructionEvent(content="be bold"))
    assert log.texts()[0] == "be kind"
    start = log.window.overflow()
    assert start == 2
    log.window.jump(start)
    assert log.texts() == ["be bold", "hi", "hello"]
    assert log.window.overflow() is None


def test_pins_keep_their_whole_exchange_over_jumps() -> None:
    """A pinned result keeps its call and stays before the window, until it is unpinned (B36)."""
    log = Log(max_tokens=400)
    log.turn(0)
    log.add(EventPinnedEvent(seqs=[3]), tokens=0)
    for number in range(1, 11):
        log.turn(number)
    fit(log.window)
    shown = log.window.messages()
    assert [message["role"] for message in shown.messages[:4]] == ["user", "assistant", "tool", "user"]
    assert "result 0" in log.texts()
    assert "answer 0" not in log.texts()
    log.add(EventPinnedEvent(seqs=[3], on=False), tokens=0)
    fit(log.window)
    assert "result 0" not in log.texts()


def test_a_pin_taken_back_before_the_jump_keeps_nothing() -> None:
    """What was pinned and unpinned again within one window leaves with the others (B36)."""
    log = Log(max_tokens=400)
    log.turn(0)
    log.add(EventPinnedEvent(seqs=[3]), EventPinnedEvent(seqs=[3], on=False), tokens=0)
    for number in range(1, 11):
        log.turn(number)
    fit(log.window)
    assert "result 0" not in log.texts()


def test_a_settled_message_is_not_shown_though_it_is_pinned() -> None:
    """A pin keeps what was said in the conversation; a message that was settled never was (B36, C12)."""
    pinned = Item(2, UserMessageEvent(seq=2, content="never mind"), 10)
    window = Window(WindowPolicy(), start_seq=10, pinned={2: [pinned]})
    assert len(window.messages().messages) == 1
    window.extend([Item(10, MessageSettledEvent(seq=10, seqs=[2], reason="cancelled"), 0)])
    window.extend([Item(11, UserMessageEvent(seq=11, content="hello"), 10)])
    again = Window(WindowPolicy(), start_seq=10, pinned={2: [pinned]})
    again.extend([Item(11, UserMessageEvent(seq=11, content="hello"), 10)])
    again.extend([Item(10, MessageSettledEvent(seq=10, seqs=[2], reason="cancelled"), 0)])
    for shown in (window, again):
        assert [message["content"][0]["text"] for message in shown.messages().messages] == ["hello"]


def test_windows_start_with_a_user_message_once_there_is_one() -> None:
    """An answer to nothing is shown only until somebody says something, and its leaving is reported (A32)."""
    log = Log()
    log.add(AgentMessageEvent(content="welcome"))
    assert log.texts()[-1] == "welcome"
    log.add(UserMessageEvent(content="hi"), AgentMessageEvent(content="hello"))
    assert log.texts() == ["hi", "hello"]
    assert [(note.kind, note.seq) for note in log.window.messages().adjustments] == [("lead_dropped", 1)]


def test_a_jump_never_parts_a_call_from_the_result_that_is_to_come() -> None:
    """While a call waits for its result, the window starts no later than its answer (A2, A60, A33)."""
    log = Log(max_tokens=400)
    for number in range(9):
        log.turn(number)
    log.add(UserMessageEvent(content="do it"), ToolCallEvent(tool_name="bash", tool_call_id="slow"))
    waiting = len(log.items)
    log.add(*[UserMessageEvent(content=f"and {number}") for number in range(30)])
    fit(log.window)
    assert log.window.start_seq <= waiting
    log.add(ToolResultEvent(tool_call_id="slow", result="done at last"))
    shown = log.window.messages()
    assert "done at last" in log.texts()
    assert not [note for note in shown.adjustments if note.kind in {"orphan_dropped", "call_closed", "result_late"}]


def test_pins_take_at_most_their_share() -> None:
    """Pins beyond half of the budget are dropped, oldest first, and reported (B36)."""
    log = Log(max_tokens=400)
    for number in range(20):
        log.turn(number)
        log.add(EventPinnedEvent(seqs=[5 * number + 3]), tokens=0)
        fit(log.window)
    adjustments = log.window.messages().adjustments
    assert "pin_dropped" in {adjustment.kind for adjustment in adjustments}
    assert "result 19" in log.texts()
    assert log.window.tokens <= 400


def test_results_that_a_tool_pinned_stay() -> None:
    """A tool may pin its own result (B36)."""
    log = Log(max_tokens=200)
    log.add(
        UserMessageEvent(content="make a plan"),
        ToolCallEvent(tool_name="plan", tool_call_id="P"),
        ToolResultEvent(tool_call_id="P", result="the plan", pinned=True),
    )
    for number in range(8):
        log.turn(number)
        fit(log.window)
    assert log.window.start_seq > 3
    assert "the plan" in log.texts()


def test_compaction_forces_a_jump_and_shows_its_summary() -> None:
    """A summary takes effect together with its jump, and what it stands for is no longer shown (C9)."""
    log = Log()
    for number in range(4):
        log.turn(number)
    log.add(CompactionEvent(from_seq=1, to_seq=8, summary="so far", first_kept_seq=9))
    assert "so far" not in " ".join(log.texts())
    assert log.window.overflow() == 9
    fit(log.window)
    assert log.texts()[:2] == ["Summary of the conversation so far:\nso far", "question 2"]


def test_consolidation_takes_effect_with_the_next_jump() -> None:
    """A new boundary changes nothing by itself; the next jump starts behind it (A29)."""
    log = Log(max_tokens=400)
    for number in range(10):
        log.turn(number)
    before = log.texts()
    log.add(ConsolidationEvent(to_seq=32), tokens=0)
    fit(log.window)
    assert log.texts() == before
    log.turn(10)
    fit(log.window)
    assert log.texts()[0] == "question 8"


def test_messages_stand_where_they_were_consumed() -> None:
    """Queued messages appear with the turn that took them, those that wait or were settled do not; direct ones at once."""
    log = Log()
    log.add(*[UserMessageEvent(content=text, queued=True) for text in ("one", "two", "three", "four")])
    assert log.texts() == []
    log.add(
        TurnStartedEvent(turn_id="t", consumes=[2]),
        AgentMessageEvent(content="answer"),
        UserMessageEvent(content="direct"),
    )
    log.add(TurnSteeredEvent(turn_id="t", consumes=[1, 3]), MessageSettledEvent(seqs=[4], reason="cancelled"))
    log.add(TurnStartedEvent(turn_id="u", consumes=[4]))
    assert log.texts() == ["two", "answer", "direct", "one", "three"]


def test_windows_ask_for_messages_that_arrived_before_their_start() -> None:
    """A window opened in the middle says which earlier messages its turns consumed, and places them (B33)."""
    log = Log()
    log.turn(0)
    log.add(UserMessageEvent(content="waited long", queued=True))
    log.turn(1)
    log.add(TurnStartedEvent(turn_id="t", consumes=[5]), AgentMessageEvent(content="finally"))
    again = Window(WindowPolicy(), start_seq=10)
    again.extend(log.items[9:])
    assert list(again.missing) == [5]
    again.extend([log.items[4]])
    assert not again.missing
    assert [message["role"] for message in again.messages().messages] == ["user", "assistant"]


def test_recalled_memory_is_told_as_text() -> None:
    """Memory stands at the tail in the user's role."""
    log = Log()
    log.add(UserMessageEvent(content="hi"), MemoryRecalledEvent(facts=[{"text": "likes tea"}]))
    assert log.texts() == ["hi", "Recalled from memory:\n- likes tea"]


def _with_image() -> list[Item]:
    digest = hashlib.sha256(PNG).hexdigest()
    image = MediaPart(media_type="image/png", blob=digest, size=len(PNG))
    said = UserMessageEvent(seq=1, content=[TextPart(text="what is it?"), image])
    return [Item(1, said, 100)]


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic", "gemini"])
def test_images_are_shown_within_limits_and_as_text_otherwise(target: str) -> None:
    """An image whose bytes are given is sent as base64; without them, or on a lower rung, as a text (C7)."""
    items = _with_image()
    blobs = {hashlib.sha256(PNG).hexdigest(): PNG}
    shown = build_window(items, target=target, media=blobs)
    assert base64.b64encode(PNG).decode() in json.dumps(shown.payload)
    assert shown.adjustments == []
    for policy, media in (
        (WindowPolicy(), None),
        (WindowPolicy(ladder="media_as_text"), blobs),
        (WindowPolicy(media_max_bytes=10), blobs),
    ):
        other = build_window(items, policy=policy, target=target, media=media)
        assert validate(target, other.payload) == []
        assert "[image/png, 70 bytes, not shown]" in json.dumps(other.payload)
        assert [adjustment.kind for adjustment in other.adjustments] == ["media_replaced"]


def test_images_beyond_the_count_are_shown_as_text() -> None:
    """Of more images than a window may hold the first are shown, where structure forbids to leave any out (C7)."""
    digest = hashlib.sha256(PNG).hexdigest()
    image = MediaPart(media_type="image/png", blob=digest, size=len(PNG))
    said = UserMessageEvent(seq=1, content=[TextPart(text="which?"), image, image])
    for limit in (WindowPolicy(media_max_count=1), WindowPolicy(media_max_total_bytes=len(PNG) + 1)):
        shown = build_window([Item(1, said, 100)], policy=limit)
        assert [block["type"] for block in shown.messages[0]["content"]] == ["text", "media", "text"]
        assert [adjustment.kind for adjustment in shown.adjustments] == ["media_replaced"]


def test_windows_name_the_blobs_they_show() -> None:
    """Whoever reads blobs for a window learns which it needs."""
    window = Window(WindowPolicy())
    window.extend(_with_image())
    assert window.media() == (hashlib.sha256(PNG).hexdigest(),)


def test_the_last_rung_shows_text_only() -> None:
    """On the last rung nothing but text is left, in alternating roles (C7)."""
    log = Log()
    log.turn(0)
    rendering = build_window(log.items, policy=WindowPolicy(ladder="text_only"))
    assert [message["role"] for message in rendering.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert {block["type"] for message in rendering.messages for block in message["content"]} == {"text"}


def test_unknown_targets_are_refused() -> None:
    """A target that does not exist is an error with a code, not an empty window."""
    with pytest.raises(InvalidQueryError):
        build_window([], target="openai")


def test_policies_survive_their_record() -> None:
    """A policy read from a log is the one that was written."""
    for ladder in LADDER:
        policy = WindowPolicy(max_tokens=7, ladder=ladder)
        assert WindowPolicy.from_json(json.loads(json.dumps(policy.to_json()))) == policy
        assert ladder in policy.name


def test_model_calls_can_be_rendered_again_byte_for_byte() -> None:
    """The log and a call's record give the window that the model was shown, over jumps and summaries (C6)."""
    log = Log(max_tokens=300)
    log.add(InstructionEvent(content="be brief"))
    calls: list[ModelCallEvent] = []
    for number in range(30):
        log.add(UserMessageEvent(content=f"question {number}"))
        if number == 20:
            log.add(InstructionEvent(content="be kind"))
        fit(log.window)
        rendering = log.window.messages()
        record = {
            **log.window.jump_record(log.window.start_seq),
            "to": log.window.last_seq,
            "policy": log.window.policy.to_json(),
            "target": "neutral",
            "renderer_version": RENDERER_VERSION,
            "digest": window_digest(rendering.messages),
        }
        seq = log.add(ModelCallEvent(model="m", window=record), tokens=0)
        calls.append(ModelCallEvent(seq=seq, model="m", window=record))
        log.add(ToolCallEvent(tool_name="t", tool_input={"f": 1e16, "é": [1.0]}, tool_call_id=f"c{number}"))
        log.add(ToolResultEvent(tool_call_id=f"c{number}", result="r"), AgentMessageEvent(content="a"))
    assert log.window.start_seq > 0
    assert all(replay(log.items, call).matches for call in calls)
    forged = calls[3].model_copy(update={"window": {**calls[3].window, "digest": "0" * 64}})
    assert replay(log.items, forged).matches is False


def test_canonical_form_is_what_it_says() -> None:
    """Canonical bytes are JSON with sorted names, no spaces, plain UTF-8, as any JSON library writes them (C6)."""
    value = {"b": [1, 1.5, 1e16, True, None], "a": {"é": "会\n\x01"}}
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert canonical(value) == plain
    assert canonical({"z": 1, "a": "é"}) == '{"a":"é","z":1}'.encode()


def test_of_an_empty_window_nothing_can_be_summarised() -> None:
    """There is no cut where nothing was said yet."""
    assert Window(WindowPolicy()).cut(keep_share=0.3) is None
