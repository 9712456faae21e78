"""Neutral messages to OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.context.media import IMAGE_TYPES, PDF, media_base64, placeholder
from kipu.context.neutral import Message, arguments_text
from kipu.context.shape import CONTINUE, Reader

MAX_CALLS = 128
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_TYPES = frozenset({*IMAGE_TYPES, PDF, *_AUDIO})


class OpenAIChatShape:
    """Give every result a message of its own, arguments as text, and media as data URLs."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def add(self, out: list[Message], messages: Sequence[Message]) -> None:
        """Append one exchange; more calls than one message takes go into several."""
        for message in messages:
            if message["role"] == "assistant":
                results = messages[-1]["content"] if messages[-1]["role"] == "tool" else []
                self._assistant(out, message, results)
            elif message["role"] == "user":
                self._append(out, {"role": "user", "content": self._said(message["content"])})
            elif message["role"] == "system":
                out.append({"role": "system", "content": "\n\n".join(part["text"] for part in message["content"])})

    def _assistant(self, out: list[Message], message: Message, results: Sequence[Message]) -> None:
        content = message["content"]
        kinds = {block["type"] for block in content}
        texts = [block["text"] for block in content if block["type"] == "text"]
        if "reasoning" in kinds:
            self.reader.note("reasoning_dropped", "Chat Completions has no place for it")
        calls = [self._call(block) for block in content if block["type"] == "tool_call"] if "tool_call" in kinds else ()
        text = "\n".join(texts) or None
        if not calls:
            self._append(out, {"role": "assistant", "content": text})
        for start in range(0, len(calls), MAX_CALLS):
            chunk = calls[start : start + MAX_CALLS]
            self._append(out, {"role": "assistant", "content": text if start == 0 else None, "tool_calls": chunk})
            out.extend(self._result(block) for block in results[start : start + MAX_CALLS])

    def _append(self, out: list[Message], message: Message) -> None:
        """Append behind a user message; in the stricter renderings user and assistant alternate, as many templates want."""
        last = out[-1]["role"] if out else "system"
        strict = self.reader.policy.strict
        if message["role"] == "assistant" and (last == "system" or (strict and last == "assistant")):
            self.reader.note("placeholder_added", "an assistant message needs a user message before it")
            out.append({"role": "user", "content": CONTINUE})
        elif strict and message["role"] == last == "user":
            self.reader.note("roles_merged", "two user messages")
            out[-1] = {"role": "user", "content": _joined(out[-1]["content"], message["content"])}
            return
        out.append(message)

    def _call(self, block: Message) -> Message:
        if "raw" in block:
            self.reader.note("raw_arguments_wrapped", f"of {block['id']!r}")
        function = {"name": self.reader.tool_name(block["name"]), "arguments": arguments_text(block)}
        return {"id": self.reader.call_id(block["id"]), "type": "function", "function": function}

    def _result(self, block: Message) -> Message:
        texts = []
        for part in block["content"]:
            if part["type"] == "media":
                self.reader.note("media_replaced", "Chat Completions takes no media in results")
            texts.append(part["text"] if part["type"] == "text" else placeholder(part))
        return {
            "role": "tool",
            "tool_call_id": self.reader.call_id(block["id"]),
            "content": error_marked("\n".join(texts), is_error=block["is_error"]),
        }

    def _said(self, content: Sequence[Message]) -> str | list[Message]:
        if len(content) == 1 and content[0]["type"] == "text":
            return str(content[0]["text"])
        parts = [part if part["type"] == "text" else self._media(part) for part in content]
        if all(part["type"] == "text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _media(self, block: Message) -> Message:
        data = media_base64(self.reader, block, types=_TYPES)
        if data is None:
            return {"type": "text", "text": placeholder(block)}
        media_type = block["media_type"]
        if media_type in _AUDIO:
            return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[media_type]}}
        url = f"data:{media_type};base64,{data}"
        if media_type == PDF:
            return {"type": "file", "file": {"filename": block.get("name") or "document.pdf", "file_data": url}}
        return {"type": "image_url", "image_url": {"url": url}}

    def finish(self, out: list[Message]) -> None:
        """End with a user message or results in the stricter renderings."""
        if self.reader.policy.strict and out and out[-1]["role"] == "assistant":
            self.reader.note("placeholder_added", "the last message is an answer")
            out.append({"role": "user", "content": CONTINUE})

    def payload(self, messages: list[Message], system: str | None) -> dict[str, Any]:
        """Return the messages under their name; the instruction is the first of them."""
        return {"messages": messages}


def error_marked(text: str, *, is_error: bool) -> str:
    """Return a result's text, marked where it is an error and does not say so itself."""
    return f"Error: {text}" if is_error and "error" not in text[:80].lower() else text


def _joined(first: str | list[Message], second: str | list[Message]) -> str | list[Message]:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    lists = [[{"type": "text", "text": part}] if isinstance(part, str) else part for part in (first, second)]
    return [*lists[0], *lists[1]]
