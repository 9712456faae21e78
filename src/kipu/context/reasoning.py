"""Sealed reasoning in a provider's own form, as far as it is well formed: a broken seal is refused for ever."""

from __future__ import annotations

import base64
import re
from typing import Any

from kipu.context.neutral import Message
from kipu.context.shape import Reader

_LISTS = ("blocks", "items", "parts")
_ITEM_ID = re.compile(r"rs[A-Za-z0-9_-]{0,62}")
_URL_SAFE = str.maketrans("-_", "+/")


def sealed_parts(block: Message) -> list[dict[str, Any]]:
    """Return the objects in a reasoning block's `opaque`: itself, or the list of them that it is or has."""
    opaque = block.get("opaque")
    if isinstance(opaque, dict):
        nested = next((opaque[name] for name in _LISTS if isinstance(opaque.get(name), list)), None)
        opaque = [opaque] if nested is None else nested
    return [part for part in opaque if isinstance(part, dict)] if isinstance(opaque, list) else []


def thinking_blocks(reader: Reader, block: Message) -> list[dict[str, Any]]:
    """Return Anthropic's thinking blocks: whole ones as they are, or one of the readable text and its signature."""
    found: list[dict[str, Any]] = []
    for part in sealed_parts(block):
        signature, data = part.get("signature"), part.get("data")
        thinking = part.get("thinking", block.get("text", ""))
        if part.get("type", "thinking") == "thinking" and _is_seal(signature) and isinstance(thinking, str):
            found.append({"type": "thinking", "thinking": thinking, "signature": signature})
        elif part.get("type") == "redacted_thinking" and _is_seal(data):
            found.append({"type": "redacted_thinking", "data": data})
    return found or _dropped(reader)


def reasoning_items(reader: Reader, block: Message) -> list[dict[str, Any]]:
    """Return Responses' reasoning items: those with an id as it makes them and encrypted content, each once."""
    found: list[dict[str, Any]] = []
    for part in sealed_parts(block):
        item_id, sealed = part.get("id"), part.get("encrypted_content")
        if part.get("type", "reasoning") != "reasoning" or not _is_seal(sealed):
            continue
        if not isinstance(item_id, str) or not _ITEM_ID.fullmatch(item_id) or item_id in reader.seen:
            continue
        reader.seen.add(item_id)
        told = part.get("summary")
        summary = [
            {"type": "summary_text", "text": line["text"]}
            for line in (told if isinstance(told, list) else ())
            if isinstance(line, dict) and isinstance(line.get("text"), str) and line["text"].strip()
        ]
        found.append({"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": sealed})
    return found or _dropped(reader)


def thought_signature(reader: Reader, block: Message) -> str | None:
    """Return Gemini's signature for the part that follows."""
    for part in sealed_parts(block):
        signature = part.get("thought_signature", part.get("thoughtSignature"))
        if isinstance(signature, str) and _is_base64(signature):
            return signature
    _dropped(reader)
    return None


def _is_seal(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_base64(text: str) -> bool:
    standard = text.translate(_URL_SAFE)
    try:
        return bool(base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True))
    except ValueError:
        return False


def _dropped(reader: Reader) -> list[dict[str, Any]]:
    reader.note("reasoning_dropped", "it has no seal that the provider would know")
    return []
