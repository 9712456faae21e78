"""Values too big for an event: their bytes go to the session's blobs, a preview and the reference stay (architecture §3)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import orjson

from kipu.events.content import BlobReference, ContentPart, MediaPart
from kipu.events.conversation import ToolResultEvent

INLINE_BYTES = 32_768
HEAD_CHARACTERS = 8_000
TAIL_CHARACTERS = 4_000


def move_result(event: ToolResultEvent, *, limit: int = INLINE_BYTES) -> tuple[ToolResultEvent, bytes] | None:
    """Return the event with a preview and the bytes for a blob, or None while the result fits."""
    if isinstance(event.result, str):
        if len(event.result) <= limit // 4:  # no character takes more than four bytes
            return None
        data, media_type = event.result.encode(), "text/plain"
    else:
        data, media_type = orjson.dumps(event.result), "application/json"
    if len(data) <= limit or event.blob is not None:
        return None
    digest = hashlib.sha256(data).hexdigest()
    reference = BlobReference(digest=digest, size=len(data), media_type=media_type, field="result")
    return event.model_copy(update={"result": _preview(data.decode(), digest), "blob": reference}), data


def _preview(text: str, digest: str) -> str:
    left_out = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:HEAD_CHARACTERS]}\n… {left_out} characters left out; the whole is blob {digest} …\n{text[-TAIL_CHARACTERS:]}"


def move_media(parts: list[ContentPart], *, limit: int = INLINE_BYTES) -> tuple[list[ContentPart], list[bytes]]:
    """Return the parts with big inline media replaced by references, and the bytes for the blobs."""
    kept: list[ContentPart] = []
    blobs: list[bytes] = []
    for part in parts:
        data = _media_bytes(part) if isinstance(part, MediaPart) else None
        if data is None or len(data) <= limit:
            kept.append(part)
            continue
        blobs.append(data)
        change: dict[str, Any] = {"data": None, "blob": hashlib.sha256(data).hexdigest(), "size": len(data)}
        kept.append(part.model_copy(update=change))
    return kept, blobs


def _media_bytes(part: MediaPart) -> bytes | None:
    if part.data is None:
        return None
    try:
        return base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        return None
