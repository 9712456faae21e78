"""What each target is sent of one history, to the letter, and what that changed (C6, C7, C8)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.context.item import Item
from kipu.context.openai_chat import MAX_CALLS
from kipu.context.policy import Ladder, WindowPolicy
from kipu.context.render import build_window
from kipu.context.rendering import Rendering
from kipu.events.content import MediaPart, TextPart
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent


def _media(media_type: str, name: str | None = None) -> MediaPart:
    return MediaPart(media_type=media_type, data="aGk=", size=3, name=name)


def _call(call_id: str, name: str = "bash", **fields: Any) -> ToolCallEvent:
    return ToolCallEvent(tool_name=name, tool_call_id=call_id, **fields)


def _with_picture(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}, _media("image/png").model_dump(exclude_none=True)]


PICTURE, PDF = "data:image/png;base64,aGk=", "data:application/pdf;base64,aGk="
NOT_SHOWN = "[image/png, 3 bytes, not shown]"
A = "call_937bb40e8164065f6b7bed3ca1f82d44"  # what "A 1" is shown as
FILES = [_media("image/png"), _media("application/pdf"), _media("application/pdf", "a.pdf"), _media("audio/wav")]
HISTORY = [
    InstructionEvent(content="be brief"),
    UserMessageEvent(content="look"),
    UserMessageEvent(content=[TextPart(text="at"), *FILES, _media("image/tiff")]),
    AgentMessageEvent(content=[TextPart(text="I look "), _media("image/png")]),
    _call("A 1", "read file", tool_input={"n": 1}),
    _call("B", raw="{", parse_error="cut"),
    _call("C"),
    ToolResultEvent(tool_call_id="A 1", result=_with_picture("seen")),
    ToolResultEvent(tool_call_id="B", result="no file", is_error=True),
    ToolResultEvent(tool_call_id="C", result=_with_picture("an Error"), is_error=True),
    AgentMessageEvent(content="done"),
]


def _rendered(*events: SessionEvent, target: str, ladder: Ladder = "normal") -> Rendering:
    items = [Item(seq, event.model_copy(update={"seq": seq}), 10) for seq, event in enumerate(events, start=1)]
    return build_window(items, policy=WindowPolicy(ladder=ladder), target=target)


def _kinds(rendering: Rendering) -> list[str]:
    return [note.kind for note in rendering.adjustments]


def _text(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


def _chat_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_openai_chat() -> None:
    """Chat Completions has arguments as text, a message for every result, and media where a user's message takes them (C7)."""
    rendering = _rendered(*HISTORY, target="openai_chat")
    files = [
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        _text("[image/tiff, 3 bytes, not shown]"),
    ]
    calls = [
        _chat_call(A, "read_file", '{"n":1}'),
        _chat_call("B", "bash", '{"raw_arguments":"{"}'),
        _chat_call("C", "bash", "{}"),
    ]
    assert rendering.payload == {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "look"},
            {"role": "user", "content": [_text("at"), *files]},
            {"role": "assistant", "content": f"I look \n{NOT_SHOWN}", "tool_calls": calls},
            {"role": "tool", "tool_call_id": A, "content": f"seen\n{NOT_SHOWN}"},
            {"role": "tool", "tool_call_id": "B", "content": "Error: no file"},
            {"role": "tool", "tool_call_id": "C", "content": f"an Error\n{NOT_SHOWN}"},
            {"role": "assistant", "content": "done"},
        ]
    }
    changed = ["media_replaced", "media_replaced", "name_changed", "id_changed", "raw_arguments_wrapped"]
    assert _kinds(rendering) == [*changed, "media_replaced", "id_changed", "media_replaced"]


def test_openai_responses() -> None:
    """Responses has an item for each text, call and output, the instruction apart, and takes pictures in outputs (C7)."""
    rendering = _rendered(*HISTORY, target="openai_responses")
    picture = {"type": "input_image", "image_url": PICTURE, "detail": "auto"}
    files = [
        picture,
        {"type": "input_file", "filename": "document.pdf", "file_data": PDF},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        _text("[audio/wav, 3 bytes, not shown]", "input_text"),
        _text("[image/tiff, 3 bytes, not shown]", "input_text"),
    ]
    said = [
        {"type": "message", "role": "assistant", "content": [_text(text, "output_text")]}
        for text in ("I look ", NOT_SHOWN)
    ]
    assert rendering.payload == {
        "instructions": "be brief",
        "input": [
            {"type": "message", "role": "user", "content": [_text("look", "input_text")]},
            {"type": "message", "role": "user", "content": [_text("at", "input_text"), *files]},
            *said,
            {"type": "function_call", "call_id": A, "name": "read_file", "arguments": '{"n":1}'},
            {"type": "function_call", "call_id": "B", "name": "bash", "arguments": '{"raw_arguments":"{"}'},
            {"type": "function_call", "call_id": "C", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": A, "output": [_text("seen", "input_text"), picture]},
            {"type": "function_call_output", "call_id": "B", "output": "Error: no file"},
            {"type": "function_call_output", "call_id": "C", "output": [_text("an Error", "input_text"), picture]},
            {"type": "message", "role": "assistant", "content": [_text("done", "output_text")]},
        ],
    }
    changed = ["media_replaced"] * 3
    assert _kinds(rendering) == [*changed, "name_changed", "id_changed", "raw_arguments_wrapped", "id_changed"]


def test_anthropic() -> None:
    """Messages alternate, results come first in the user's, errors hold text only, and no answer ends with a space (C7)."""
    rendering = _rendered(*HISTORY, target="anthropic")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    untaken = [_text("[audio/wav, 3 bytes, not shown]"), _text("[image/tiff, 3 bytes, not shown]")]
    calls = [
        {"type": "tool_use", "id": A, "name": "read_file", "input": {"n": 1}},
        {"type": "tool_use", "id": "B", "name": "bash", "input": {"raw_arguments": "{"}},
        {"type": "tool_use", "id": "C", "name": "bash", "input": {}},
    ]
    failed = [[_text("no file")], [_text("an Error"), _text("[image/png, not shown]")]]
    results = [
        {"type": "tool_result", "tool_use_id": A, "content": [_text("seen"), picture]},
        {"type": "tool_result", "tool_use_id": "B", "content": failed[0], "is_error": True},
        {"type": "tool_result", "tool_use_id": "C", "content": failed[1], "is_error": True},
    ]
    assert rendering.payload == {
        "system": "be brief",
        "messages": [
            {"role": "user", "content": [_text("look"), _text("at"), picture, pdf, pdf, *untaken]},
            {"role": "assistant", "content": [_text("I look"), _text(NOT_SHOWN), *calls]},
            {"role": "user", "content": results},
            {"role": "assistant", "content": [_text("done")]},
        ],
    }
    changed = ["media_replaced", "media_replaced", "roles_merged", "media_replaced", "text_trimmed"]
    changed += ["name_changed", "id_changed", "raw_arguments_wrapped"]
    assert sorted(_kinds(rendering)) == sorted([*changed, "media_replaced", "id_changed"])


def test_gemini() -> None:
    """Contents alternate, each content of calls is answered by one of as many responses, which hold text (C7)."""
    rendering = _rendered(*HISTORY, target="gemini")
    types = ("image/png", "application/pdf", "application/pdf", "audio/wav")
    files = [{"inlineData": {"mimeType": media_type, "data": "aGk="}} for media_type in types]
    calls: list[dict[str, Any]] = [
        {"id": A, "name": "read_file", "args": {"n": 1}},
        {"id": "B", "name": "bash", "args": {"raw_arguments": "{"}},
        {"id": "C", "name": "bash", "args": {}},
    ]
    told = ({"output": f"seen\n{NOT_SHOWN}"}, {"error": "no file"}, {"error": f"an Error\n{NOT_SHOWN}"})
    responses = [
        {"functionResponse": {"id": call["id"], "name": call["name"], "response": response}}
        for call, response in zip(calls, told, strict=True)
    ]
    asked = [{"text": "look"}, {"text": "at"}, *files, {"text": "[image/tiff, 3 bytes, not shown]"}]
    said = [{"text": "I look "}, {"text": NOT_SHOWN}, *({"functionCall": call} for call in calls)]
    assert rendering.payload == {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": asked},
            {"role": "model", "parts": said},
            {"role": "user", "parts": responses},
            {"role": "model", "parts": [{"text": "done"}]},
        ],
    }
    kinds = _kinds(rendering)
    assert kinds.count("media_replaced") == 4
    assert {"roles_merged", "name_changed", "id_changed", "raw_arguments_wrapped"} <= set(kinds)


_ASKS = [
    UserMessageEvent(content="a"),
    UserMessageEvent(content=[TextPart(text="b"), _media("image/png")]),
    UserMessageEvent(content="c"),
]


def test_strict_chat_lets_roles_alternate() -> None:
    """Many templates take user and assistant in turn only, and a user's message at the end (C7, C8)."""
    answers = [AgentMessageEvent(content="d"), AgentMessageEvent(content="e")]
    rendering = _rendered(*_ASKS, *answers, target="openai_chat", ladder="strict")
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    assert rendering.messages == [
        {"role": "user", "content": [_text("a"), _text("b"), picture, _text("c")]},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "(continue)"},
        {"role": "assistant", "content": "e"},
        {"role": "user", "content": "(continue)"},
    ]
    assert _kinds(rendering) == ["roles_merged", "roles_merged", "placeholder_added", "placeholder_added"]
    texts = _rendered(_ASKS[0], _ASKS[2], target="openai_chat", ladder="strict")
    assert texts.messages == [{"role": "user", "content": "a\n\nc"}]
    normal = _rendered(*_ASKS, *answers, target="openai_chat")
    assert [message["role"] for message in normal.messages] == ["user", "user", "user", "assistant", "assistant"]


@pytest.mark.parametrize("target", ["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"])
def test_a_history_that_begins_or_ends_with_an_answer(target: str) -> None:
    """A user's message is put before the first answer, and behind the last one where asked to be strict, and told (C7, C8)."""
    answer = AgentMessageEvent(content="hello")
    begun = _rendered(ModelCallEvent(model="m", window={}), answer, target=target)
    assert [message["role"] for message in begun.messages] == ["user", "model" if target == "gemini" else "assistant"]
    assert "(continue)" in str(begun.messages[0])
    assert _kinds(begun) == ["placeholder_added"]
    strict = _rendered(UserMessageEvent(content="hi"), answer, target=target, ladder="strict")
    assert "(continue)" in str(strict.messages[-1])
    assert _kinds(strict) == ["placeholder_added"]
    normal = _rendered(UserMessageEvent(content="hi"), answer, target=target)
    assert (len(normal.messages), _kinds(normal)) == (2, [])


def test_chat_takes_so_many_calls_in_one_message() -> None:
    """More calls than one message takes are several messages, each with its results, and the text once (C7)."""
    ids = [f"c{number}" for number in range(2 * MAX_CALLS + 1)]
    results = [ToolResultEvent(tool_call_id=call_id, result=call_id) for call_id in ids]
    events = [UserMessageEvent(content="go"), AgentMessageEvent(content="many"), *[_call(one) for one in ids], *results]
    shown = _rendered(*events, target="openai_chat").messages[1:]
    answers = [message for message in shown if message["role"] == "assistant"]
    assert [len(message["tool_calls"]) for message in answers] == [MAX_CALLS, MAX_CALLS, 1]
    assert [message["content"] for message in answers] == ["many", None, None]
    assert [message["content"] for message in shown if message["role"] == "tool"] == ids
    assert shown[MAX_CALLS + 1] is answers[1]
