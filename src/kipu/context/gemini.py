"""Neutral messages to Gemini's contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.context.media import IMAGE_TYPES, PDF, media_base64, placeholder
from kipu.context.neutral import Message, arguments
from kipu.context.reasoning import thought_signature
from kipu.context.shape import CONTINUE, Reader

_TYPES = frozenset({*IMAGE_TYPES, PDF, "audio/wav", "audio/mpeg", "audio/mp3", "video/mp4", "image/heic", "image/heif"})


class GeminiShape:
    """Let user and model alternate, and answer each content of calls by one content of as many responses."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def add(self, out: list[Message], messages: Sequence[Message]) -> None:
        """Append one exchange, merged with what the user said before it; an answer after an answer gets one between."""
        for message in messages:
            role = message["role"]
            if role == "assistant":
                if not out or out[-1]["role"] == "model":
                    self.reader.note("placeholder_added", "a model's content needs a user's before it")
                    out.append(_said_text(CONTINUE))
                out.append({"role": "model", "parts": self._answer(message["content"])})
            elif role == "tool":
                out.append({"role": "user", "parts": [self._response(block) for block in message["content"]]})
            elif role == "user":
                self._append_user(out, {"role": "user", "parts": [self._said(block) for block in message["content"]]})

    def _append_user(self, out: list[Message], content: Message) -> None:
        if out and out[-1]["role"] == "user":
            self.reader.note("roles_merged", "two contents of the user")
            out[-1] = {"role": "user", "parts": [*out[-1]["parts"], *content["parts"]]}
        else:
            out.append(content)

    def _answer(self, content: Sequence[Message]) -> list[Message]:
        parts: list[Message] = []
        signature: str | None = None
        for block in content:
            if block["type"] == "reasoning":
                signature = thought_signature(self.reader, block) or signature
                continue
            is_call = block["type"] == "tool_call"
            part: Message = {"functionCall": self._call(block)} if is_call else {"text": block["text"]}
            if signature is not None:
                part["thoughtSignature"] = signature
                signature = None
            parts.append(part)
        return parts

    def _call(self, block: Message) -> Message:
        if "raw" in block:
            self.reader.note("raw_arguments_wrapped", f"of {block['id']!r}")
        name = self.reader.tool_name(block["name"])
        return {"id": self.reader.call_id(block["id"]), "name": name, "args": arguments(block)}

    def _response(self, block: Message) -> Message:
        texts = []
        for part in block["content"]:
            if part["type"] == "media":
                self.reader.note("media_replaced", "a function's response holds text")
            texts.append(part["text"] if part["type"] == "text" else placeholder(part))
        told = {"error" if block["is_error"] else "output": "\n".join(texts)}
        call_id, name = self.reader.call_id(block["id"]), self.reader.tool_name(block["name"])
        return {"functionResponse": {"id": call_id, "name": name, "response": told}}

    def _said(self, block: Message) -> Message:
        if block["type"] == "text":
            return {"text": block["text"]}
        data = media_base64(self.reader, block, types=_TYPES)
        if data is None:
            return {"text": placeholder(block)}
        return {"inlineData": {"mimeType": block["media_type"], "data": data}}

    def finish(self, out: list[Message]) -> None:
        """End with the user's role in the stricter renderings."""
        if self.reader.policy.strict and out and out[-1]["role"] == "model":
            self.reader.note("placeholder_added", "the last content is an answer")
            out.append(_said_text(CONTINUE))

    def payload(self, messages: list[Message], system: str | None) -> dict[str, Any]:
        """Return the contents, and the instruction beside them."""
        if system is None:
            return {"contents": messages}
        return {"systemInstruction": {"parts": [{"text": system}]}, "contents": messages}


def _said_text(text: str) -> Message:
    return {"role": "user", "parts": [{"text": text}]}
