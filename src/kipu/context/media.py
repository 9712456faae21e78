"""Media as the base64 that providers take, where they take the type at all."""

from __future__ import annotations

import base64

from kipu.context.neutral import Message, media_text
from kipu.context.shape import Reader

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"


def media_base64(reader: Reader, block: Message, *, types: frozenset[str]) -> str | None:
    """Return the base64 of a media block, or None (reported) where its type or bytes are not to be had."""
    why = None
    data: str | None = block.get("data")
    if block["media_type"] not in types:
        why = "the provider does not take the type"
    elif data is None:
        raw = (reader.media or {}).get(block.get("blob", ""))
        if raw is None:
            why = "its bytes were not given"
        else:
            data = base64.b64encode(raw).decode("ascii")
    if data is not None and why is None:
        why = _fault(data, max_bytes=reader.policy.media_max_bytes)
    if why is not None:
        reader.note("media_replaced", f"{block['media_type']}: {why}")
        return None
    return data


def _fault(data: str, *, max_bytes: int) -> str | None:
    try:
        size = len(base64.b64decode(data, validate=True))
    except ValueError:
        return "it is not base64"
    if not size:
        return "it is empty"
    return f"it has more than {max_bytes} bytes" if size > max_bytes else None


def placeholder(block: Message) -> str:
    """Return the text that stands for a media block."""
    return media_text(block["media_type"], block["size"], name=block.get("name"))
