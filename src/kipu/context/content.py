"""What an event says, as parts: text and media, whoever said it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import orjson
from pydantic import ValidationError

from kipu.context.exchange import Exchange
from kipu.events.content import Content, MediaPart, TextPart
from kipu.events.conversation import AgentMessageEvent, MemoryRecalledEvent, ToolResultEvent, UserMessageEvent

Parts: TypeAlias = Sequence[TextPart | MediaPart]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")

_SYNTHETIC = {
    "interrupted": "[interrupted, outcome unknown]",
    "cancelled": "[cancelled before it ended]",
    "skipped": "[skipped: it was not started]",
    "denied": "[denied: it was not started]",
}


def parts_of(content: Content) -> Parts:
    """Return a message's content as parts."""
    return [TextPart(text=content)] if isinstance(content, str) else content


def result_parts(event: ToolResultEvent) -> Parts:
    """Return a tool result as parts: content parts where the tool gave some, else one text."""
    given = _content_parts(event.result)
    if given is not None and not event.error_info:
        return given
    return [TextPart(text=result_text(event))]


def result_text(event: ToolResultEvent) -> str:
    """Return a tool result as one text, its error information included."""
    text = value_text(event.result)
    if event.error_info and event.error_info not in text:
        text = f"{text}\n{event.error_info}" if text.strip() else event.error_info
    if not text.strip() and event.synthetic:
        return _SYNTHETIC[event.synthetic]
    return text


def value_text(value: Any) -> str:
    """Return text as it is, nothing as "", and any other value as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))


def memory_text(event: MemoryRecalledEvent) -> str:
    """Return recalled facts as the text that a model is shown."""
    lines = [
        str(fact.get("text") or fact.get("fact") or fact.get("content") or value_text(fact)) for fact in event.facts
    ]
    return "\n".join([event.notice or "Recalled from memory:", *(f"- {line}" for line in lines)])


def media_size(part: MediaPart) -> int:
    """Return the bytes of a media part, also where its size was not stated."""
    return max(part.size, len(part.data) * 3 // 4 if part.data else 0)


def is_usable(part: MediaPart) -> bool:
    """Say whether a media part has a well-formed type and either a digest or some base64."""
    if not _MEDIA_TYPE.fullmatch(part.media_type):
        return False
    if part.blob is not None:
        return bool(_DIGEST.fullmatch(part.blob))
    try:
        return bool(base64.b64decode(part.data or "", validate=True))
    except ValueError:
        return False


def shown_blobs(exchange: Exchange) -> list[str]:
    """Return the digests of the blobs that an exchange shows within the limits."""
    shown = exchange.media_shown
    if not shown:
        return []
    blobs: list[str] = []
    for item in exchange.items():
        event = item.event
        if isinstance(event, UserMessageEvent | AgentMessageEvent):
            parts = parts_of(event.content)
        else:
            parts = result_parts(event) if isinstance(event, ToolResultEvent) else ()
        for index, part in enumerate(parts):
            if isinstance(part, MediaPart) and part.blob and (item.seq, index) in shown:
                blobs.append(part.blob)
    return blobs


def _content_parts(value: Any) -> Parts | None:
    """Return `value` as parts when it is a list of them and at least one is media."""
    if not isinstance(value, list) or not value or not all(isinstance(part, dict) for part in value):
        return None
    if not all(part.get("type") in {"text", "media"} for part in value):
        return None
    if not any(part["type"] == "media" for part in value):
        return None
    try:
        return [_PART[part["type"]].model_validate(part) for part in value]
    except ValidationError:
        return None


_PART: dict[str, type[TextPart | MediaPart]] = {"text": TextPart, "media": MediaPart}
