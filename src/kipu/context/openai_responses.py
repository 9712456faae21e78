"""Neutral messages to the input items of OpenAI Responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.context.media import IMAGE_TYPES, PDF, media_base64, placeholder
from kipu.context.neutral import Message, arguments_text
from kipu.context.openai_chat import error_marked
from kipu.context.reasoning import reasoning_items
from kipu.context.shape import CONTINUE, Reader

_TYPES = frozenset({*IMAGE_TYPES, PDF})


class OpenAIResponsesShape:
    """Make items of messages, calls, outputs and sealed reasoning, each reasoning item right before what it led to."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def add(self, out: list[Message], messages: Sequence[Message]) -> None:
        """Append the items of one exchange."""
        for message in messages:
            role = message["role"]
            if role == "user":
                out.append({"type": "message", "role": "user", "content": [self._said(b) for b in message["content"]]})
            elif role == "assistant":
                if not out:
                    self.reader.note("placeholder_added", "an answer needs a user message before it")
                    out.append(_said_text(CONTINUE))
                self._answer(out, message["content"])
            elif role == "tool":
                out.extend(self._output(block) for block in message["content"])

    def _answer(self, out: list[Message], content: Sequence[Message]) -> None:
        for block in content:
            if block["type"] == "reasoning":
                out.extend(reasoning_items(self.reader, block))
            elif block["type"] == "tool_call":
                out.append(self._call(block))
            else:
                said = [{"type": "output_text", "text": block["text"]}]
                out.append({"type": "message", "role": "assistant", "content": said})

    def _call(self, block: Message) -> Message:
        if "raw" in block:
            self.reader.note("raw_arguments_wrapped", f"of {block['id']!r}")
        name, call_id = self.reader.tool_name(block["name"]), self.reader.call_id(block["id"])
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments_text(block)}

    def _output(self, block: Message) -> Message:
        content = [self._said(part) for part in block["content"]]
        output: str | list[Message]
        if all(part["type"] == "input_text" for part in content):
            output = error_marked("\n".join(part["text"] for part in content), is_error=block["is_error"])
        else:
            output = content
        return {"type": "function_call_output", "call_id": self.reader.call_id(block["id"]), "output": output}

    def _said(self, block: Message) -> Message:
        if block["type"] == "text":
            return {"type": "input_text", "text": block["text"]}
        data = media_base64(self.reader, block, types=_TYPES)
        if data is None:
            return {"type": "input_text", "text": placeholder(block)}
        url = f"data:{block['media_type']};base64,{data}"
        if block["media_type"] == PDF:
            return {"type": "input_file", "filename": block.get("name") or "document.pdf", "file_data": url}
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def finish(self, out: list[Message]) -> None:
        """End with a user's item or an output in the stricter renderings."""
        if self.reader.policy.strict and out and out[-1].get("role") == "assistant":
            self.reader.note("placeholder_added", "the last item is an answer")
            out.append(_said_text(CONTINUE))

    def payload(self, messages: list[Message], system: str | None) -> dict[str, Any]:
        """Return the items as input, and the instruction beside them."""
        return {"input": messages} if system is None else {"instructions": system, "input": messages}


def _said_text(text: str) -> Message:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
