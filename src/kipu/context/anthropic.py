"""Neutral messages to Anthropic Messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.context.media import IMAGE_TYPES, PDF, media_base64, placeholder
from kipu.context.neutral import Message, arguments, merged, same_role
from kipu.context.reasoning import thinking_blocks
from kipu.context.shape import CONTINUE, Reader

_TYPES = frozenset({*IMAGE_TYPES, PDF})


class AnthropicShape:
    """Let user and assistant alternate, results come first in the user's message, and every text say something."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def add(self, out: list[Message], messages: Sequence[Message]) -> None:
        """Append one exchange, merged with a user message before it; an answer after an answer gets one between."""
        for message in messages:
            if message["role"] == "assistant":
                if not out or out[-1]["role"] == "assistant":
                    self.reader.note("placeholder_added", "an assistant message needs a user message before it")
                    out.append({"role": "user", "content": [{"type": "text", "text": CONTINUE}]})
                out.append({"role": "assistant", "content": self._answer(message["content"])})
            elif message["role"] != "system":
                self._append_user(out, message)

    def _append_user(self, out: list[Message], message: Message) -> None:
        results = message["role"] == "tool"
        content = [self._result(block) if results else self._said(block) for block in message["content"]]
        shaped = {"role": "user", "content": content}
        if same_role(out, shaped):
            self.reader.note("roles_merged", "two user messages")
            out[-1] = merged(out[-1], shaped)
        else:
            out.append(shaped)

    def _answer(self, content: Sequence[Message]) -> list[Message]:
        blocks: list[Message] = []
        for block in content:
            if block["type"] == "reasoning":
                sealed = thinking_blocks(self.reader, block)
                if blocks and blocks[0]["type"] not in {"thinking", "redacted_thinking"} and sealed:
                    self.reader.note("reasoning_dropped", "a message with thinking must start with it")
                else:
                    blocks += sealed
            elif block["type"] == "tool_call":
                blocks.append(self._call(block))
            else:
                blocks.append({"type": "text", "text": self._trimmed(block)})
        return blocks

    def _trimmed(self, block: Message) -> str:
        text = str(block["text"])
        trimmed = text.rstrip()
        if len(trimmed) != len(text):
            self.reader.note("text_trimmed", "an answer must not end with white space")
        return trimmed

    def _call(self, block: Message) -> Message:
        if "raw" in block:
            self.reader.note("raw_arguments_wrapped", f"of {block['id']!r}")
        name = self.reader.tool_name(block["name"])
        return {"type": "tool_use", "id": self.reader.call_id(block["id"]), "name": name, "input": arguments(block)}

    def _result(self, block: Message) -> Message:
        content = [self._said(part) for part in block["content"]]
        if block["is_error"]:
            content = [part if part["type"] == "text" else self._not_shown(part) for part in content]
        shaped = {"type": "tool_result", "tool_use_id": self.reader.call_id(block["id"]), "content": content}
        return {**shaped, "is_error": True} if block["is_error"] else shaped

    def _not_shown(self, part: Message) -> Message:
        self.reader.note("media_replaced", "an error holds text")
        return {"type": "text", "text": f"[{part['source']['media_type']}, not shown]"}

    def _said(self, block: Message) -> Message:
        if block["type"] == "text":
            return block
        data = media_base64(self.reader, block, types=_TYPES)
        if data is None:
            return {"type": "text", "text": placeholder(block)}
        source = {"type": "base64", "media_type": block["media_type"], "data": data}
        return {"type": "document" if block["media_type"] == PDF else "image", "source": source}

    def finish(self, out: list[Message]) -> None:
        """End with the user's role in the stricter renderings: newer models refuse to go on with an answer."""
        if self.reader.policy.strict and out and out[-1]["role"] == "assistant":
            self.reader.note("placeholder_added", "the last message is an answer")
            out.append({"role": "user", "content": [{"type": "text", "text": CONTINUE}]})

    def payload(self, messages: list[Message], system: str | None) -> dict[str, Any]:
        """Return the messages, and the instruction beside them."""
        return {"messages": messages} if system is None else {"system": system, "messages": messages}
