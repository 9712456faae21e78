"""What a server answered, as content that a window can hold."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

import orjson

from kipu.context.content import value_text
from kipu.ports.tool import ToolResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_BLOCKS = 200
MAX_TEXT_CHARACTERS = 2_000_000
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")


def result_of(answer: CallToolResult) -> ToolResult:
    """Return text where there is only text, else parts (text and media); structured content where nothing else says it.

    What cannot be shown (broken base64, an odd media type, too many blocks) is a line of text that says so.
    """
    parts = [_part(block) for block in answer.content[:MAX_BLOCKS]]
    if len(answer.content) > MAX_BLOCKS:
        parts.append(_text(f"[{len(answer.content) - MAX_BLOCKS} further parts were left out]"))
    texts = [part["text"] for part in parts if part["type"] == "text"]
    structured = answer.structured_content
    if structured is not None and not _is_said(structured, texts):
        if not parts and not isinstance(structured, list):
            return _result(answer, structured)
        parts.append(_text(value_text(structured)))
        texts.append(parts[-1]["text"])
    if len(texts) < len(parts):
        return _result(answer, [_shortened(part) for part in parts])
    return _result(answer, _cut("\n".join(texts)))


def _result(answer: CallToolResult, content: Any) -> ToolResult:
    is_error = answer.is_error is True
    if is_error and content in ("", []):
        content = "The tool reported an error and said no more."
    return ToolResult(content, is_error=is_error, error_info="tool_error" if is_error else None)


def _part(block: Any) -> dict[str, Any]:
    kind = getattr(block, "type", "")
    if kind == "text":
        return _text(block.text)
    if kind in ("image", "audio"):
        return _media(block.data, block.mime_type, name=None)
    if kind == "resource":
        resource = block.resource
        if hasattr(resource, "text"):
            return _text(f"[resource {resource.uri}]\n{resource.text}")
        return _media(resource.blob, resource.mime_type or "application/octet-stream", name=str(resource.uri))
    if kind == "resource_link":
        described = f": {block.description}" if block.description else ""
        return _text(f"[link to resource {block.uri} ({block.mime_type or 'unknown type'}) {block.name}{described}]")
    return _text(f"[a part of the unknown type {kind!r:.40} was left out]")


def _media(data: str, media_type: str, *, name: str | None) -> dict[str, Any]:
    media_type = media_type.split(";", maxsplit=1)[0].strip().lower()
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if not size or not _MEDIA_TYPE.fullmatch(media_type):
        return _text(f"[{media_type[:80] or 'media'} that cannot be read was left out]")
    part: dict[str, Any] = {"type": "media", "media_type": media_type, "data": data, "size": size}
    return part if name is None else {**part, "name": name[:200]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _shortened(part: dict[str, Any]) -> dict[str, Any]:
    return _text(_cut(part["text"])) if part["type"] == "text" else part


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    half = MAX_TEXT_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _is_said(structured: Any, texts: list[str]) -> bool:
    """Say whether a text is the structured content already, as servers write it for clients that know text only."""
    for text in texts:
        if isinstance(structured, dict) and structured == {"result": text}:
            return True
        try:
            said = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if structured in (said, {"result": said}):
            return True
    return False
