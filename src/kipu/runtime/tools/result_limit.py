"""Results of any size, cut so that an event stays small and the model can read on."""

from __future__ import annotations

import asyncio
import base64
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Any

from kipu.context.content import value_text
from kipu.events.content import BlobReference
from kipu.events.normalise import normalise
from kipu.runtime.tools.terminal_text import model_text, model_value

DEFAULT_LIMIT = 16_000
MIN_LIMIT = 1_000
INLINE_MEDIA_CHARACTERS = 8_000
_NOTE_CHARACTERS = 330
_THREAD_CHARACTERS = 200_000
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")

PutBlob = Callable[[bytes], Awaitable[str]]


async def limited(
    content: Any, *, put_blob: PutBlob | None, limit: int = DEFAULT_LIMIT
) -> tuple[Any, BlobReference | None]:
    """Return a result that has at most `limit` characters of text, and where its whole is when something was cut.

    Text, JSON and content parts are taken; text loses what steers a terminal. A cut keeps head and tail and tells how to
    read on with `read_result`. Without `put_blob` what is cut is lost, and the note says so. Never raises for a value.
    """
    limit = max(limit, MIN_LIMIT)
    if isinstance(content, str) and len(content) <= _THREAD_CHARACTERS:
        content = model_text(content)
    else:
        content = await asyncio.to_thread(_clean, content)
    if _has_media(content):
        return await _limited_parts(content, put_blob=put_blob, limit=limit)
    text = content if isinstance(content, str) else await asyncio.to_thread(value_text, content)
    if len(text) <= limit:
        return content, None
    return await _limited_text(
        text,
        media_type="text/plain" if isinstance(content, str) else "application/json",
        put_blob=put_blob,
        limit=limit,
    )


def _clean(content: Any) -> Any:
    return model_text(content) if isinstance(content, str) else model_value(normalise(content)[0])


async def _limited_text(
    text: str, *, media_type: str, put_blob: PutBlob | None, limit: int
) -> tuple[str, BlobReference | None]:
    if put_blob is None:
        return cut_text(text, limit=limit, digest=None), None
    data = text.encode()
    digest = await put_blob(data)
    reference = BlobReference(digest=digest, size=len(data), media_type=media_type, field="result")
    return cut_text(text, limit=limit, digest=digest), reference


def cut_text(text: str, *, limit: int, digest: str | None) -> str:
    """Return head and tail of `text` with a note between them that says what is left out and how to get it."""
    room = max(limit - _NOTE_CHARACTERS, 2)
    head = _cut_point(text, room * 2 // 3, backwards=True)
    tail = _cut_point(text, len(text) - room // 3, backwards=False)
    left_out = text[head:tail]
    lines = left_out.count("\n")
    told = f"{len(left_out)} characters" + (f" ({lines} lines)" if lines else "")
    if digest is None:
        where = "they were not kept"
    else:
        where = f"the whole result has {len(text)} characters; go on with read_result(digest={digest!r}, offset={head})"
    return f"{text[:head]}\n[… {told} left out here; {where} …]\n{text[tail:]}"


def _cut_point(text: str, at: int, *, backwards: bool) -> int:
    """Return a place near `at` to cut: at a line break when one is close, else never between a letter and its marks."""
    step = -1 if backwards else 1
    near = text.rfind("\n", at - 400, at) if backwards else text.find("\n", at, at + 200)
    if near >= 0:
        return near + 1
    for _ in range(16):
        if not 0 < at < len(text) or not _belongs_together(text[at - 1], text[at]):
            break
        at += step
    return at


def _belongs_together(before: str, after: str) -> bool:
    return bool(unicodedata.combining(after)) or after in _JOINERS or before == "\u200d"


def _has_media(content: Any) -> bool:
    if not isinstance(content, list) or not content:
        return False
    kinds = {part.get("type") if isinstance(part, dict) else None for part in content}
    return "media" in kinds and kinds <= {"text", "media"}


async def _limited_parts(
    parts: list[dict[str, Any]], *, put_blob: PutBlob | None, limit: int
) -> tuple[list[dict[str, Any]], BlobReference | None]:
    """Cut the text of content parts, and move their bytes to blobs: one reference, that of the first text that was cut."""
    kept: list[dict[str, Any]] = []
    reference: BlobReference | None = None
    left = limit
    for part in parts:
        if part["type"] == "media":
            kept.append(await _moved_media(part, put_blob))
            continue
        text = str(part.get("text") or "")
        if len(text) > left:
            text, cut = await _limited_text(
                text, media_type="text/plain", put_blob=put_blob, limit=max(left, MIN_LIMIT)
            )
            reference = reference or cut
        left = max(left - len(text), 0)
        kept.append({**part, "text": text})
    return kept, reference


async def _moved_media(part: dict[str, Any], put_blob: PutBlob | None) -> dict[str, Any]:
    """Return a media part whose bytes are in a blob; what is no base64, or has no blob to go to, becomes a text."""
    data = part.get("data")
    if not isinstance(data, str) or len(data) <= INLINE_MEDIA_CHARACTERS:
        return part
    kind = str(part.get("media_type"))
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        return {"type": "text", "text": f"[{kind}: its data is not base64]"}
    if put_blob is None:
        return {"type": "text", "text": f"[{kind}, {len(raw)} bytes: not kept]"}
    moved = {name: value for name, value in part.items() if name != "data"}
    return {**moved, "blob": await put_blob(raw), "size": len(raw)}
