"""Answers as model providers stream them: OpenAI Chat Completions, OpenAI Responses and Anthropic Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CREATED = 1_767_225_600


@dataclass(frozen=True, slots=True)
class FakeCall:
    """Hold one tool call of an answer; `arguments` is JSON text, or deliberately none."""

    call_id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class FakeFailure:
    """Script one refusal. Without `body` it is written in the style of the path that was asked."""

    status: int
    message: str = "no"
    kind: str = "invalid_request_error"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def content(self) -> bytes:
        """Return the response's body; both vendors' clients read this shape."""
        if self.body is not None:
            return self.body
        error = {"type": self.kind, "message": self.message, "code": self.code, "param": None}
        return json.dumps({"type": "error", "error": error}).encode()


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """Script one streamed answer.

    `cut_after` drops the connection after that many stream events; `end_after` ends the body properly but too early;
    `fail_after` sends `failure` as an event of the open stream, as providers do under load;
    `hold_after` falls silent there until `FakeProvider.release` is called or the client goes away. An `endless` answer
    repeats its text until the client goes away.
    """

    text: str = ""
    reasoning: str = ""
    signature: str = ""
    redacted: str = ""
    calls: Sequence[FakeCall] = ()
    finish: str | None = None
    input_tokens: int = 11
    cached_tokens: int = 0
    output_tokens: int = 7
    chunk_chars: int = 5
    cut_after: int | None = None
    end_after: int | None = None
    hold_after: int | None = None
    fail_after: int | None = None
    failure: FakeFailure | None = None
    endless: bool = False

    def pieces(self, text: str) -> Iterator[str]:
        """Return `text` in the sizes in which it is streamed."""
        for start in range(0, len(text), self.chunk_chars):
            yield text[start : start + self.chunk_chars]
        while self.endless and text and text is self.text:
            yield text


def chat_events(answer: FakeAnswer, model: str) -> Iterator[bytes]:
    """Stream the answer as OpenAI Chat Completions does."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data(_chat_head(model) | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in answer.pieces(answer.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in answer.pieces(answer.text):
        yield chunk({"content": piece})
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.call_id, "type": "function", "function": function}]})
        for piece in answer.pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, answer.finish or ("tool_calls" if answer.calls else "stop"))
    usage = {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
    yield _data(_chat_head(model) | {"choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chat_head(model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": CREATED, "model": model}


def messages_events(answer: FakeAnswer, model: str) -> Iterator[bytes]:
    """Stream the answer as Anthropic Messages does."""
    usage = {
        "input_tokens": answer.input_tokens - answer.cached_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    head = {"id": "msg_fake", "type": "message", "role": "assistant", "model": model, "content": []}
    start = head | {"stop_reason": None, "stop_sequence": None, "usage": usage}
    yield _named("message_start", {"message": start})
    for index, (block, deltas) in enumerate(_blocks(answer)):
        yield _named("content_block_start", {"index": index, "content_block": block})
        for delta in deltas:
            yield _named("content_block_delta", {"index": index, "delta": delta})
        yield _named("content_block_stop", {"index": index})
    reason = answer.finish or ("tool_use" if answer.calls else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield _named("message_delta", {"delta": delta, "usage": {"output_tokens": answer.output_tokens}})
    yield _named("message_stop", {})


def _blocks(answer: FakeAnswer) -> Iterator[tuple[dict[str, Any], Iterator[dict[str, Any]]]]:
    if answer.reasoning or answer.signature:
        yield {"type": "thinking", "thinking": "", "signature": ""}, _thinking_deltas(answer)
    if answer.redacted:
        yield {"type": "redacted_thinking", "data": answer.redacted}, iter(())
    if answer.text:
        texts = ({"type": "text_delta", "text": piece} for piece in answer.pieces(answer.text))
        yield {"type": "text", "text": ""}, texts
    for call in answer.calls:
        block = {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        yield block, ({"type": "input_json_delta", "partial_json": piece} for piece in answer.pieces(call.arguments))


def _thinking_deltas(answer: FakeAnswer) -> Iterator[dict[str, Any]]:
    for piece in answer.pieces(answer.reasoning):
        yield {"type": "thinking_delta", "thinking": piece}
    if answer.signature:
        yield {"type": "signature_delta", "signature": answer.signature}


def responses_events(answer: FakeAnswer, model: str) -> Iterator[bytes]:
    """Stream the answer as OpenAI Responses does."""
    head: dict[str, Any] = {
        "id": "resp_fake",
        "object": "response",
        "created_at": CREATED,
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    yield _named("response.created", {"sequence_number": 0, "response": head | {"status": "in_progress"}})
    output: list[dict[str, Any]] = []
    for index, (item, deltas) in enumerate(_items(answer)):
        opened = item | {"status": "in_progress"} | ({"content": []} if item["type"] == "message" else {})
        opened |= {"arguments": ""} if item["type"] == "function_call" else {}
        opened |= {"summary": []} if item["type"] == "reasoning" else {}
        yield _named("response.output_item.added", {"sequence_number": 1, "output_index": index, "item": opened})
        for kind, delta in deltas:
            place = {"sequence_number": 1, "output_index": index, "item_id": item["id"]}
            yield _named(kind, place | delta)
        output.append(item | {"status": "completed"})
        yield _named("response.output_item.done", {"sequence_number": 1, "output_index": index, "item": output[-1]})
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": answer.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    done = head | {"status": "completed", "output": output, "usage": usage}
    yield _named("response.completed", {"sequence_number": 2, "response": done})


def _items(answer: FakeAnswer) -> Iterator[tuple[dict[str, Any], Iterator[tuple[str, dict[str, Any]]]]]:
    if answer.reasoning or answer.signature:
        summary = [{"type": "summary_text", "text": answer.reasoning}] if answer.reasoning else []
        item = {"id": "rs_fake", "type": "reasoning", "summary": summary, "encrypted_content": answer.signature}
        kind = "response.reasoning_summary_text.delta"
        yield item, ((kind, {"summary_index": 0, "delta": piece}) for piece in answer.pieces(answer.reasoning))
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        item = {"id": "msg_fake", "type": "message", "role": "assistant", "content": content}
        kind = "response.output_text.delta"
        yield (
            item,
            ((kind, {"content_index": 0, "delta": piece, "logprobs": []}) for piece in answer.pieces(answer.text)),
        )
    for number, call in enumerate(answer.calls):
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": call.call_id, "name": call.name}
        item["arguments"] = call.arguments
        kind = "response.function_call_arguments.delta"
        yield item, ((kind, {"delta": piece}) for piece in answer.pieces(call.arguments))


def _data(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def _named(name: str, body: Mapping[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\n" + _data({"type": name, **body})
