"""Answers as model providers stream them: OpenAI Chat Completions, OpenAI Responses and Anthropic Messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

CREATED = 1_767_225_600


class FakeCut(Exception):  # noqa: N818
    """The script drops the connection here."""


@dataclass(frozen=True, slots=True)
class FakeCall:
    """Hold one tool call of an answer; `arguments` is JSON text, or deliberately none.

    The connection drops in the middle of the arguments of a `cut` call; those of an `endless` one are repeated until the
    client goes away.
    """

    call_id: str
    name: str
    arguments: str = "{}"
    cut: bool = False
    endless: bool = False


@dataclass(frozen=True, slots=True)
class FakeFailure:
    """Script one refusal; with status 0 the connection is dropped instead of an answer.

    Without `body` it is written in a shape that the clients of all formats read.
    """

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

    def as_event(self, path: str) -> bytes:
        """Return the failure as an event of a stream that has begun."""
        if path != "responses" or self.body is not None:
            return b"event: error\ndata: " + self.content() + b"\n\n"
        error = {"code": self.code or self.kind, "message": self.message, "param": None}
        return _named("error", {"sequence_number": 9, **error})


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """Script one streamed answer.

    `cut_after` drops the connection after that many stream events; `end_after` ends the body properly but too early;
    `fail_after` sends `failure` as an event of the open stream, as providers do under load;
    `hold_after` falls silent there until `FakeProvider.release` is called or the client goes away, with -1 before any header.
    An `endless` answer repeats its text until the client goes away. `drip_s` is the pause before each event. What `then`
    says follows in the same message: thinking between calls, or a text behind them. An answer of nothing is an empty one.
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
    drip_s: float = 0.0
    then: FakeAnswer | None = None

    def sections(self) -> Iterator[FakeAnswer]:
        """Return what is said one after the other."""
        section: FakeAnswer | None = self
        while section is not None:
            yield section
            section = section.then

    def has_calls(self) -> bool:
        """Return whether it calls any tool."""
        return any(section.calls for section in self.sections())

    def call_pieces(self, call: FakeCall) -> Iterator[str]:
        """Return a call's arguments in the sizes in which they are streamed."""
        pieces = list(self.pieces(call.arguments))
        yield from pieces[: max(1, len(pieces) // 2)] if call.cut else pieces
        if call.cut:
            raise FakeCut
        while call.endless and call.arguments:
            yield call.arguments

    def pieces(self, text: str) -> Iterator[str]:
        """Return `text` in the sizes in which it is streamed."""
        for start in range(0, len(text), self.chunk_chars):
            yield text[start : start + self.chunk_chars]
        while self.endless and text and text is self.text:
            yield text


Scripted: TypeAlias = FakeAnswer | FakeFailure | Callable[[dict[str, Any]], FakeAnswer | FakeFailure]


def chat_events(answer: FakeAnswer, model: str) -> Iterator[bytes]:
    """Stream the answer as OpenAI Chat Completions does."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data(_chat_head(model) | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for delta in _chat_deltas(answer):
        yield chunk(delta)
    yield chunk({}, answer.finish or ("tool_calls" if answer.has_calls() else "stop"))
    usage = {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
    yield _data(_chat_head(model) | {"choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chat_deltas(answer: FakeAnswer) -> Iterator[dict[str, Any]]:
    index = 0
    for said in answer.sections():
        for piece in said.pieces(said.reasoning):
            yield {"reasoning_content": piece}
        for piece in said.pieces(said.text):
            yield {"content": piece}
        for call in said.calls:
            function = {"name": call.name, "arguments": ""}
            yield {"tool_calls": [{"index": index, "id": call.call_id, "type": "function", "function": function}]}
            for piece in said.call_pieces(call):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            index += 1


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
    blocks = (block for said in answer.sections() for block in _blocks(said))
    for index, (block, deltas) in enumerate(blocks):
        yield _named("content_block_start", {"index": index, "content_block": block})
        for delta in deltas:
            yield _named("content_block_delta", {"index": index, "delta": delta})
        yield _named("content_block_stop", {"index": index})
    reason = answer.finish or ("tool_use" if answer.has_calls() else "end_turn")
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
        yield block, ({"type": "input_json_delta", "partial_json": piece} for piece in answer.call_pieces(call))


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
    items = (item for part, said in enumerate(answer.sections()) for item in _items(said, part))
    for index, (item, deltas) in enumerate(items):
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


def _items(answer: FakeAnswer, part: int) -> Iterator[tuple[dict[str, Any], Iterator[tuple[str, dict[str, Any]]]]]:
    if answer.reasoning or answer.signature:
        summary = [{"type": "summary_text", "text": answer.reasoning}] if answer.reasoning else []
        item = {"id": f"rs_{part}", "type": "reasoning", "summary": summary, "encrypted_content": answer.signature}
        kind = "response.reasoning_summary_text.delta"
        yield item, ((kind, {"summary_index": 0, "delta": piece}) for piece in answer.pieces(answer.reasoning))
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        item = {"id": f"msg_{part}", "type": "message", "role": "assistant", "content": content}
        kind = "response.output_text.delta"
        yield (
            item,
            ((kind, {"content_index": 0, "delta": piece, "logprobs": []}) for piece in answer.pieces(answer.text)),
        )
    for number, call in enumerate(answer.calls):
        item = {"id": f"fc_{part}_{number}", "type": "function_call", "call_id": call.call_id, "name": call.name}
        item["arguments"] = call.arguments
        kind = "response.function_call_arguments.delta"
        yield item, ((kind, {"delta": piece}) for piece in answer.call_pieces(call))


def _data(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def _named(name: str, body: Mapping[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\n" + _data({"type": name, **body})
