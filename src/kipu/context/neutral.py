"""Exchanges to neutral messages: the unit of record, over which digests are taken (C6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kipu.context.adjustment import Adjustment, AdjustmentKind
from kipu.context.content import (
    Parts,
    is_usable,
    media_size,
    memory_text,
    result_parts,
    result_text,
    value_text,
)
from kipu.context.exchange import CLOSED_TOKENS, Call, Exchange
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.shortening import fair_share, shorten_strings, shorten_text
from kipu.events.boundary import CompactionEvent
from kipu.events.content import Content, MediaPart, ProviderMark
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    MemoryRecalledEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)

Message: TypeAlias = dict[str, Any]

CLOSED_TEXT = "[interrupted, outcome unknown: no result of this call was recorded]"
EMPTY_USER = "(empty message)"
EMPTY_ANSWER = "(no answer)"
EMPTY_RESULT = "(no output)"
_INTERRUPTED_ANSWER = "(interrupted before it said anything)"


@dataclass(slots=True)
class NeutralRenderer:
    """Render exchanges one by one, for one reader: opaque reasoning is for the provider and model that made it."""

    policy: WindowPolicy
    provider: str | None
    model: str | None
    notes: list[Adjustment]
    text_tokens: int = field(init=False)  # what the policy says, worked out once
    is_text_only: bool = field(init=False)

    def __post_init__(self) -> None:
        self.text_tokens = self.policy.text_tokens
        self.is_text_only = self.policy.ladder == "text_only"

    def render(self, exchange: Exchange) -> list[Message]:
        """Return the messages of one exchange; what was changed goes to `notes`."""
        self.notes += exchange.notes
        if exchange.kind == "assistant":
            messages = [self._assistant(exchange)]
            if exchange.calls:
                messages.append({"role": "tool", "content": self._results(exchange)})
        else:
            messages = [{"role": "user", "content": self._said(exchange)}]
        return [self._flatten(message, exchange) for message in messages] if self.is_text_only else messages

    # What is shown in the user's role

    def _said(self, exchange: Exchange) -> list[Message]:
        item = exchange.message
        event = item.event if item is not None else None
        if item is None:
            blocks = []
        elif isinstance(event, UserMessageEvent):
            blocks = self._content(exchange, item, event.content)
        elif isinstance(event, MemoryRecalledEvent):
            blocks = [_text(self._shortened(memory_text(event), item, self.text_tokens))]
        elif isinstance(event, ToolResultEvent):
            head = f"[Late result of the tool call {event.tool_call_id}, which was shown as interrupted:]"
            blocks = [_text(head), *self._blocks(exchange, item, parts=result_parts(event))]
        else:
            blocks = []
        return blocks or [self._placeholder(EMPTY_USER, exchange.seq)]

    # What is shown in the assistant's role

    def _assistant(self, exchange: Exchange) -> Message:
        content: list[Message] = []
        item = exchange.message
        if item is not None and isinstance(item.event, AgentMessageEvent):
            content += self._reasoning(item.event.provider, item.seq, text=item.event.reasoning)
            content += self._content(exchange, item, item.event.content)
        if exchange.calls:
            limit = fair_share([call.item.tokens for call in exchange.calls], total=self.text_tokens)
            for call in exchange.calls:
                content += self._reasoning(call.event.provider, call.item.seq, text=None)
                content.append(self._call(call, limit))
        if all(block["type"] == "reasoning" for block in content):
            event = item.event if item is not None else None
            cut = isinstance(event, AgentMessageEvent) and event.state == "interrupted"
            content.append(self._placeholder(_INTERRUPTED_ANSWER if cut else EMPTY_ANSWER, exchange.seq))
        return {"role": "assistant", "content": content}

    def _reasoning(self, mark: ProviderMark | None, seq: int, *, text: str | None) -> list[Message]:
        opaque = mark.opaque if mark is not None else None
        if opaque is None and not (text and text.strip()):
            return []
        if mark is None or self.policy.strict or (mark.name, mark.model) != (self.provider, self.model):
            self._note("reasoning_dropped", seq, "it is for the provider and model that made it")
            return []
        block: Message = {"type": "reasoning", "provider": mark.name, "model": mark.model}
        if text and text.strip():
            block["text"] = text
        if opaque is not None:
            block["opaque"] = opaque if isinstance(opaque, dict) else {"blocks": opaque}
        return [block]

    def _call(self, call: Call, limit: int) -> Message:
        event = call.event
        block: Message = {"type": "tool_call", "id": call.id, "name": _named(event)}
        if event.raw is not None and (event.parse_error is not None or not event.tool_input):
            block["raw"] = self._shortened(event.raw, call.item, limit)
        elif call.item.tokens > limit:
            max_chars = max(64, limit)
            block["input"] = shorten_strings(event.tool_input, max_chars=max_chars)
            self._note("text_shortened", call.item.seq, f"arguments cut to {max_chars} characters each")
        else:
            block["input"] = event.tool_input
        return block

    # Results

    def _results(self, exchange: Exchange) -> list[Message]:
        costs = [call.result.tokens if call.result is not None else CLOSED_TOKENS for call in exchange.calls]
        limit = fair_share(costs, total=self.text_tokens)
        return [self._result(exchange, call, limit) for call in exchange.calls]

    def _result(self, exchange: Exchange, call: Call, limit: int) -> Message:
        block: Message = {"type": "tool_result", "id": call.id, "name": _named(call.event)}
        item = call.result
        event = item.event if item is not None else None
        if item is None or not isinstance(event, ToolResultEvent):
            self._note("call_closed", call.item.seq, f"{call.id!r} has no result")
            return {**block, "content": [_text(CLOSED_TEXT)], "is_error": True}
        is_plain = not isinstance(event.result, list)
        if is_plain:
            text = self._shortened(result_text(event), item, limit)
            content = [_text(text)] if text.strip() else []
        else:
            content = self._blocks(exchange, item, parts=result_parts(event), limit=limit)
        if not content:
            content = [self._placeholder(EMPTY_RESULT, item.seq)]
        return {**block, "content": content, "is_error": event.is_error}

    # Parts

    def _content(self, exchange: Exchange, item: Item, content: Content) -> list[Message]:
        """Return what somebody said, without making parts of what is text alone."""
        if not isinstance(content, str):
            return self._blocks(exchange, item, parts=content)
        if content.strip():
            return [_text(self._shortened(content, item, self.text_tokens))]
        if content:
            self._note("empty_text_dropped", item.seq, "")
        return []

    def _blocks(self, exchange: Exchange, item: Item, *, parts: Parts, limit: int | None = None) -> list[Message]:
        limit = self.text_tokens if limit is None else limit
        blocks: list[Message] = []
        for index, part in enumerate(parts):
            if isinstance(part, MediaPart):
                shown = exchange.media_shown is not None and (item.seq, index) in exchange.media_shown
                shown = shown and not isinstance(item.event, AgentMessageEvent)
                blocks.append(self._media(part, item.seq, shown=shown))
            elif part.text.strip():
                blocks.append(_text(self._shortened(part.text, item, limit)))
            elif part.text or len(parts) > 1:
                self._note("empty_text_dropped", item.seq, "")
        return blocks

    def _media(self, part: MediaPart, seq: int, *, shown: bool) -> Message:
        if not shown or not self.policy.shows_media or not is_usable(part):
            self._note("media_replaced", seq, part.media_type)
            return _text(media_text(part.media_type, media_size(part), name=part.name))
        block: Message = {"type": "media", "media_type": part.media_type, "size": media_size(part)}
        if part.blob:
            block["blob"] = part.blob
        else:
            block["data"] = part.data
        if part.name:
            block["name"] = part.name
        return block

    def _shortened(self, text: str, item: Item, max_tokens: int) -> str:
        if item.tokens <= max_tokens:
            return text
        short = shorten_text(text, tokens=item.tokens, max_tokens=max_tokens)
        if short is not text:
            self._note("text_shortened", item.seq, f"{len(text)} characters to {len(short)}")
        return short

    def _flatten(self, message: Message, exchange: Exchange) -> Message:
        if all(block["type"] == "text" for block in message["content"]):
            return message
        self._note("text_flattened", exchange.seq, "tool calls and results are shown as text")
        role = "user" if message["role"] == "tool" else message["role"]
        return {"role": role, "content": [_as_text(block) for block in message["content"]]}

    def _placeholder(self, text: str, seq: int) -> Message:
        self._note("placeholder_added", seq, text)
        return _text(text)

    def _note(self, kind: AdjustmentKind, seq: int, detail: str) -> None:
        self.notes.append(Adjustment(kind, seq, detail))


def _named(event: ToolCallEvent) -> str:
    """Return the call's name; white space alone is none, to a provider as to a person."""
    return event.tool_name if event.tool_name.strip() else "unknown_tool"


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def media_text(media_type: str, size: int, *, name: str | None) -> str:
    """Return the text that stands for a media part which is not shown."""
    named = f" {name!r}" if name else ""
    return f"[{media_type}{named}, {size} bytes, not shown]"


def _as_text(block: Message) -> Message:
    if block["type"] == "tool_call":
        given = block["raw"] if "raw" in block else arguments_text(block)
        return _text(f"[called the tool {block['name']} with {given}]")
    if block["type"] == "tool_result":
        told = "\n".join(part["text"] for part in block["content"] if part["type"] == "text")
        return _text(f"[{'error' if block['is_error'] else 'result'} of the tool {block['name']}]\n{told}")
    return block


def arguments_text(block: Message) -> str:
    """Return a tool call's arguments as the text of a JSON object, also where they did not parse."""
    return value_text(arguments(block))


def arguments(block: Message) -> Any:
    """Return a tool call's arguments as an object; text that did not parse goes under a name of its own."""
    return {"raw_arguments": block["raw"]} if "raw" in block else block["input"]


def head_messages(instruction: Item | None, summary: Item | None) -> list[Message]:
    """Return the messages before all exchanges: the instruction, and the summary of what came before the window."""
    messages = []
    if (
        instruction is not None
        and isinstance(instruction.event, InstructionEvent)
        and instruction.event.content.strip()
    ):
        messages.append({"role": "system", "content": [_text(instruction.event.content)]})
    if summary is not None and isinstance(summary.event, CompactionEvent) and summary.event.summary.strip():
        text = f"Summary of the conversation so far:\n{summary.event.summary}"
        messages.append({"role": "user", "content": [_text(text)]})
    return messages


def merged(first: Message, second: Message) -> Message:
    """Return one message of two of the same role."""
    return {**first, "content": [*first["content"], *second["content"]]}


def same_role(messages: Sequence[Message], message: Message) -> bool:
    """Say whether `message` follows one of its own role."""
    return bool(messages) and messages[-1]["role"] == message["role"]
