"""`read_result`: reads on in a result that was too long to be shown whole."""

from __future__ import annotations

import asyncio
import re

from kipu.errors import BlobNotFoundError
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.tools.file_tool import failure, whole_number
from kipu.runtime.tools.result_limit import DEFAULT_LIMIT
from kipu.runtime.tools.terminal_text import model_text

_NOTE_CHARACTERS = 300
_DIGEST = re.compile(r"[0-9a-f]{64}")

SPEC = ToolSpec(
    name="read_result",
    description=(
        "Read on in a tool result that was cut. The cut result names its digest and the offset to go on with; offset and "
        "limit count characters. With find it shows the part around the next occurrence of a text from offset on."
    ),
    parameters={
        "type": "object",
        "properties": {
            "digest": {"type": "string", "description": "The digest that the cut result names: 64 characters."},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "The first character to show, from 0. Default: 0.",
            },
            "limit": {"type": "integer", "minimum": 1, "description": "How many characters. Default: as many as fit."},
            "find": {"type": "string", "minLength": 1, "description": "Begin shortly before this text instead."},
        },
        "required": ["digest"],
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
)


class ReadResult:
    """Show a part of a blob of the session; one answer never needs cutting itself."""

    def __init__(self, *, page_characters: int = DEFAULT_LIMIT) -> None:
        self._room = max(page_characters - _NOTE_CHARACTERS, 200)

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return SPEC

    def subject(self, arguments: JsonObject) -> str:
        """Return the digest."""
        return str(arguments.get("digest") or "")

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return which result is read on."""
        return ToolPreview(f"read on in result {self.subject(arguments)[:12]}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Return the asked part of the result, and how to go on."""
        digest = arguments["digest"].strip().lower()
        if not _DIGEST.fullmatch(digest):
            return failure("A digest has 64 characters of 0-9 and a-f; the cut result names it.", word="digest_invalid")
        if context.read_blob is None:
            return failure("This session keeps no results to read on in.", word="blob_not_found")
        try:
            data = await context.read_blob(digest)
        except BlobNotFoundError:
            return failure(f"This session has no result with the digest {digest}.", word="blob_not_found")
        text = await asyncio.to_thread(_text, data)
        if text is None:
            return failure(f"That is no text: {len(data)} bytes, first {data[:16].hex(' ')}.", word="binary")
        return self._part(text, arguments)

    def _part(self, text: str, arguments: JsonObject) -> ToolResult:
        offset = whole_number(arguments, "offset", default=0)
        wanted = arguments.get("find")
        if offset >= len(text) > 0:
            return failure(f"The result has {len(text)} characters; there is nothing at {offset}.", word="offset")
        if wanted:
            at = text.find(wanted, offset)
            if at < 0:
                return ToolResult(f"[{wanted!r} is not in the result from {offset} on; it has {len(text)} characters]")
            offset = max(offset, at - 200)
        end = min(offset + min(whole_number(arguments, "limit", default=self._room), self._room), len(text))
        line = text.rfind("\n", offset + (end - offset) * 3 // 4, end)
        if end < len(text) and line > 0 and "limit" not in arguments:
            end = line + 1
        rest = f"go on with offset={end}" if end < len(text) else "this is its end"
        return ToolResult(f"{text[offset:end]}\n[characters {offset}-{end} of {len(text)}; {rest}]")

    async def aclose(self) -> None:
        """Hold nothing, so free nothing."""


def _text(data: bytes) -> str | None:
    """Return a blob as text, as a model is shown text; None for what is none."""
    try:
        return model_text(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None
