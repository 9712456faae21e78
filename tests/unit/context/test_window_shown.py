"""What of each event a model is shown, to the letter, and what is said about the rest (C6, C7, C8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.render import build_window
from kipu.context.rendering import Rendering
from kipu.events.content import MediaPart, ProviderMark, TextPart
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent

ASK = UserMessageEvent(content="go")
BLOB = "b" * 64


def _shown(*events: SessionEvent, tokens: int = 10, policy: WindowPolicy | None = None, **reader: Any) -> Rendering:
    items = [Item(seq, event.model_copy(update={"seq": seq}), tokens) for seq, event in enumerate(events, start=1)]
    return build_window(items, policy=policy or WindowPolicy(), **reader)


def _last(rendering: Rendering) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = rendering.messages[-1]["content"]
    return content


def _kinds(rendering: Rendering) -> list[str]:
    return [note.kind for note in rendering.adjustments]


def _call(**fields: Any) -> ToolCallEvent:
    return ToolCallEvent(**{"tool_name": "bash", "tool_call_id": "A", **fields})


@pytest.mark.parametrize("name", ["", " "])
def test_a_call_without_a_name_gets_one(name: str) -> None:
    """No provider takes a call without a name (C7)."""
    call, told = _shown(ASK, _call(tool_name=name), ToolResultEvent(tool_call_id="A", result="r")).messages[1:]
    assert (call["content"][0]["name"], told["content"][0]["name"]) == ("unknown_tool", "unknown_tool")


@pytest.mark.parametrize("result", ["", " ", None, []])
def test_a_result_without_a_word_says_so(result: Any) -> None:
    """A result that is empty is shown as one that had no output (C7, C8)."""
    rendering = _shown(ASK, _call(), ToolResultEvent(tool_call_id="A", result=result))
    (told,) = _last(rendering)
    assert told["content"][0]["text"] == ("[]" if result == [] else "(no output)")
    assert _kinds(rendering) == ([] if result == [] else ["placeholder_added"])


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        ("", ["placeholder_added"]),
        (" \n", ["empty_text_dropped", "placeholder_added"]),
        ([TextPart(text=" ")], ["empty_text_dropped", "placeholder_added"]),
        ([TextPart(text="")], ["placeholder_added"]),
        ([], ["placeholder_added"]),
    ],
)
def test_a_message_without_a_word_says_so(content: Any, kinds: list[str]) -> None:
    """Nothing but white space is shown as an empty message, and told where there was something (C7, C8)."""
    rendering = _shown(UserMessageEvent(content=content))
    assert _last(rendering) == [{"type": "text", "text": "(empty message)"}]
    assert _kinds(rendering) == kinds


def test_an_empty_part_beside_others_is_left_out() -> None:
    """Of several parts those that say something are shown (C7, C8)."""
    rendering = _shown(UserMessageEvent(content=[TextPart(text=""), TextPart(text="look")]))
    assert _last(rendering) == [{"type": "text", "text": "look"}]
    assert _kinds(rendering) == ["empty_text_dropped"]


@pytest.mark.parametrize(
    ("state", "text"), [("complete", "(no answer)"), ("interrupted", "(interrupted before it said anything)")]
)
def test_an_answer_without_a_word_says_why(state: Any, text: str) -> None:
    """An answer that was cut off before its first word is told from one that had none (C8)."""
    assert _last(_shown(ASK, AgentMessageEvent(content="", state=state))) == [{"type": "text", "text": text}]


def test_an_empty_instruction_is_none() -> None:
    """White space alone is no system message (C7)."""
    assert [message["role"] for message in _shown(InstructionEvent(content=" "), ASK).messages] == ["user"]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"raw": '{"a": 1', "parse_error": "cut", "tool_input": {"a": 1}}, {"raw": '{"a": 1'}),
        ({"raw": "[]"}, {"raw": "[]"}),
        ({"raw": '{"a":  1}', "tool_input": {"a": 1}}, {"input": {"a": 1}}),
    ],
)
def test_arguments_are_shown_as_they_parsed_and_else_as_they_came(fields: Any, shown: Any) -> None:
    """What the model wrote is shown where it was no object; where it was, the object is (B13, C7)."""
    block = _shown(ASK, _call(**fields)).messages[1]["content"][0]
    assert {name: block[name] for name in ("raw", "input") if name in block} == shown


@pytest.mark.parametrize("fields", [{"tool_input": {"text": ["x" * 9_000]}}, {"raw": "x" * 9_000, "parse_error": "no"}])
def test_long_arguments_are_shortened(fields: Any) -> None:
    """A call takes no more of the window than any other text, and its arguments keep their names (B36, C8)."""
    rendering = _shown(ASK, _call(**fields), tokens=2_000, policy=WindowPolicy(max_tokens=4_000))
    block = rendering.messages[1]["content"][0]
    assert 300 < len(str(block)) < 7_000
    assert "characters left out" in str(block)
    assert "text_shortened" in _kinds(rendering)


def test_a_result_in_parts_is_shown_within_its_share() -> None:
    """Text parts of a result beside a picture are shortened like any other result (B36, C8)."""
    parts = [{"type": "text", "text": "x" * 9_000}, {"type": "media", "media_type": "image/png", "blob": BLOB}]
    policy = WindowPolicy(max_tokens=4_000, text_share=0.5)
    results = [ToolResultEvent(tool_call_id=call_id, result=parts) for call_id in "AB"]
    rendering = _shown(ASK, _call(), _call(tool_call_id="B"), *results, tokens=3_000, policy=policy)
    assert sum(len(str(part)) for told in _last(rendering) for part in told["content"]) < 8_000


def test_thought_is_shown_to_whom_it_is_from() -> None:
    """Readable and sealed reasoning are one block, and blank reasoning is none (B12, C28)."""
    seal = {"thought_signature": "c2ln"}
    mark = ProviderMark(name="p", model="m", opaque=seal)
    thought = AgentMessageEvent(content="42", reasoning="hm", provider=mark)
    shown = _shown(ASK, thought, provider="p", model="m")
    block = {"type": "reasoning", "provider": "p", "model": "m", "text": "hm", "opaque": seal}
    assert _last(shown) == [block, {"type": "text", "text": "42"}]
    strict = _shown(ASK, thought, policy=WindowPolicy(ladder="strict"), provider="p", model="m")
    assert strict.messages[1]["content"] == [{"type": "text", "text": "42"}]
    assert "reasoning_dropped" in _kinds(strict)
    blank = _shown(ASK, AgentMessageEvent(content="42", reasoning=" "), provider="p", model="m")
    assert (_last(blank), _kinds(blank)) == ([{"type": "text", "text": "42"}], [])


def test_thought_without_a_seal_and_a_seal_without_a_thought() -> None:
    """Whatever of the two there is goes back to its maker; a bare list of sealed blocks is one seal (B12, C28)."""
    readable = AgentMessageEvent(content="42", reasoning="hm", provider=ProviderMark(name="p", model="m"))
    sealed = AgentMessageEvent(content="42", reasoning=" ", provider=ProviderMark(name="p", model="m", opaque=["s"]))
    maker = {"type": "reasoning", "provider": "p", "model": "m"}
    assert _last(_shown(ASK, readable, provider="p", model="m"))[0] == {**maker, "text": "hm"}
    assert _last(_shown(ASK, sealed, provider="p", model="m"))[0] == {**maker, "opaque": {"blocks": ["s"]}}


def _picture(**fields: Any) -> UserMessageEvent:
    return UserMessageEvent(content=[MediaPart(**{"media_type": "image/png", "blob": BLOB, "size": 9, **fields})])


def test_a_named_picture_keeps_its_name() -> None:
    """Media are shown with the name that somebody gave them, also where a text stands for them (C7, C8)."""
    assert _last(_shown(_picture(name="plan.png")))[0]["name"] == "plan.png"
    assert "name" not in _last(_shown(_picture()))[0]
    told = _shown(_picture(name="plan.png"), policy=WindowPolicy(ladder="text_only"))
    assert _last(told) == [{"type": "text", "text": "[image/png 'plan.png', 9 bytes, not shown]"}]


@pytest.mark.parametrize("fields", [{"blob": "no digest"}, {"blob": None, "data": "%"}, {"media_type": "png"}])
def test_a_picture_that_nobody_could_show_is_told_of(fields: Any) -> None:
    """A part without a type, a digest or base64 is shown as text, by every target alike (C7, C8)."""
    rendering = _shown(_picture(**fields))
    assert _last(rendering)[0]["type"] == "text"
    assert _kinds(rendering) == ["media_replaced"]


def test_a_picture_above_the_limit_is_told_of() -> None:
    """One that is too big is shown as text, one that just fits as it is (C7)."""
    policy = WindowPolicy(media_max_bytes=10, media_max_total_bytes=30)
    shown = _shown(_picture(size=10), _picture(size=11), _picture(size=9), policy=policy)
    assert [message["content"][0]["type"] for message in shown.messages] == ["media", "text", "media"]


def test_calls_and_results_can_be_shown_as_text() -> None:
    """The last rung of the ladder shows what was called with what, and whether it failed (C7, C8)."""
    events = [
        ASK,
        _call(tool_input={"cmd": "ls"}),
        _call(tool_call_id="B", raw="{", parse_error="cut"),
        ToolResultEvent(tool_call_id="A", result="two\nfiles"),
        ToolResultEvent(tool_call_id="B", result="no", is_error=True),
    ]
    rendering = _shown(*events, policy=WindowPolicy(ladder="text_only"))
    texts = [block["text"] for message in rendering.messages for block in message["content"]]
    assert texts == [
        "go",
        '[called the tool bash with {"cmd":"ls"}]',
        "[called the tool bash with {]",
        "[result of the tool bash]\ntwo\nfiles",
        "[error of the tool bash]\nno",
    ]
    assert [message["role"] for message in rendering.messages] == ["user", "assistant", "user"]
    assert _kinds(rendering) == ["text_flattened", "text_flattened"]


@pytest.mark.parametrize(
    ("result", "fields", "text"),
    [
        ("out", {"error_info": "exit_code"}, "out\nexit_code"),
        ("", {"error_info": "timeout"}, "timeout"),
        ("no exit_code", {"error_info": "exit_code"}, "no exit_code"),
        (None, {"synthetic": "interrupted"}, "[interrupted, outcome unknown]"),
        (" ", {"synthetic": "denied"}, "[denied: it was not started]"),
        ("not now", {"synthetic": "denied"}, "not now"),
        ({"a": [1, None]}, {}, '{"a":[1,null]}'),
        (False, {}, "false"),
    ],
)
def test_a_result_says_what_came_of_its_call(result: Any, fields: Any, text: str) -> None:
    """A model reads why a call failed, once, and why no tool wrote a result, where that says nothing itself (B14, C8)."""
    told = _last(_shown(ASK, _call(), ToolResultEvent(tool_call_id="A", result=result, **fields)))[0]
    assert told["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    "result",
    [
        [{"type": "text", "text": "seen"}],
        [{"type": "media", "media_type": "image/png", "blob": BLOB}, {"type": "row"}],
        [{"type": "media", "media_type": "image/png", "blob": BLOB}, "seen"],
        [{"type": "media", "media_type": 5}],
    ],
)
def test_a_list_that_is_no_content_is_shown_as_json(result: Any) -> None:
    """A tool's own data may look like parts of a message: without a picture, or with anything else in it, it is data (B14)."""
    rendering = _shown(ASK, _call(), ToolResultEvent(tool_call_id="A", result=result))
    (part,) = _last(rendering)[0]["content"]
    assert (part["type"], json.loads(part["text"])) == ("text", result)


def test_media_whose_bytes_nobody_has_are_told_of() -> None:
    """Without its bytes, without one of them, or with more than may be sent, a picture is told of as text (C7, C8)."""
    for media, why in (({}, "not given"), ({BLOB: b""}, "empty"), ({BLOB: b"123456"}, "more than 5 bytes")):
        policy = WindowPolicy(media_max_bytes=5)
        rendering = _shown(_picture(size=0), policy=policy, target="anthropic", media=media)
        assert _last(rendering) == [{"type": "text", "text": "[image/png, 0 bytes, not shown]"}]
        (note,) = rendering.adjustments
        assert (note.kind, why in note.detail) == ("media_replaced", True)
    shown = _shown(_picture(size=0), policy=WindowPolicy(media_max_bytes=5), target="anthropic", media={BLOB: b"12345"})
    assert _last(shown)[0]["source"]["data"] == "MTIzNDU="


@pytest.mark.parametrize(
    ("target", "opaque", "sent"),
    [
        ("anthropic", {"thinking": "hm", "signature": "s"}, [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
        ("anthropic", {"signature": "s"}, [{"type": "thinking", "thinking": "I think", "signature": "s"}]),
        ("anthropic", [{"type": "redacted_thinking", "data": "d"}, 7], [{"type": "redacted_thinking", "data": "d"}]),
        ("anthropic", {"type": "other", "signature": "s"}, []),
        ("anthropic", {"type": "other", "data": "d"}, []),
        ("anthropic", {"thinking": 7, "signature": "s"}, []),
        ("anthropic", {"thinking": "hm", "signature": " "}, []),
        ("anthropic", {"type": "redacted_thinking", "data": ""}, []),
        (
            "openai_responses",
            {"id": "rs_1", "encrypted_content": "e"},
            [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}],
        ),
        ("openai_responses", {"type": "message", "id": "rs_1", "encrypted_content": "e"}, []),
        ("openai_responses", {"id": "rs_1", "encrypted_content": ""}, []),
        ("openai_responses", {"id": 1, "encrypted_content": "e"}, []),
        ("gemini", {"thoughtSignature": "c2ln"}, [{"text": "42", "thoughtSignature": "c2ln"}]),
        ("gemini", {"thoughtSignature": ""}, []),
    ],
)
def test_what_is_sent_of_a_seal(target: str, opaque: Any, sent: Any) -> None:
    """A provider gets its own seals, whole, in its own form; where there is none, that is told (C7, C8, C28)."""
    mark = ProviderMark(name="p", model="m", opaque=opaque)
    answer = AgentMessageEvent(content="42", reasoning="I think", provider=mark)
    rendering = _shown(ASK, answer, target=target, provider="p", model="m")
    found = rendering.messages[1:] if target == "openai_responses" else rendering.messages[1].get("content")
    found = rendering.messages[1]["parts"] if found is None else found
    said = ({"type": "text", "text": "42"}, {"text": "42"})
    assert [part for part in found if part not in said and part.get("type") != "message"] == sent
    assert _kinds(rendering) == ([] if sent else ["reasoning_dropped"])
