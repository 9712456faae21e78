"""`read_file`: a file as numbered lines, in pieces that fit, or as an image."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kipu.ports.tool import JsonObject, ToolContext, ToolResult, ToolSpec
from kipu.ports.workspace import WorkspaceFiles
from kipu.runtime.tools.file_tool import MAX_FILE_BYTES, FileTool, failure, finished, whole_number
from kipu.runtime.tools.result_limit import DEFAULT_LIMIT
from kipu.runtime.tools.seen_files import SeenFiles
from kipu.runtime.tools.terminal_text import visible_controls
from kipu.runtime.tools.text_file import TextFile, binary_kind, image_type

DEFAULT_LINES = 2_000
MAX_LINE_CHARACTERS = 4_000
MAX_IMAGE_BYTES = 3_500_000
INLINE_IMAGE_BYTES = 6_000
_NOTES_CHARACTERS = 600  # of a page's room, for what is said after the lines

SPEC = ToolSpec(
    name="read_file",
    description=(
        "Read a file of the workspace. Text comes as numbered lines (number, tab, line); the numbers are not part of the "
        "file. A long file comes in pieces: the last line of the answer says with which offset to go on. Images (PNG, "
        "JPEG, GIF, WebP) are shown. Read a file before you edit or overwrite it."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path of the file, relative to the workspace."},
            "offset": {"type": "integer", "minimum": 1, "description": "First line to show, from 1. Default: 1."},
            "limit": {"type": "integer", "minimum": 1, "description": f"How many lines. Default: {DEFAULT_LINES}."},
            "column": {
                "type": "integer",
                "minimum": 1,
                "description": "For a very long line: show the first line from this character on. Default: 1.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
)


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a text is asked for, and how many characters there are for it."""

    offset: int
    limit: int
    column: int
    room: int


class ReadFile(FileTool):
    """Show a file of the workspace. `page_characters` bounds one answer: whole lines that fit, then how to go on."""

    def __init__(
        self, *, seen: SeenFiles | None = None, root: Path | None = None, page_characters: int = DEFAULT_LIMIT
    ) -> None:
        super().__init__(SPEC, seen=seen, root=root)
        self._room = max(page_characters - _NOTES_CHARACTERS, 400)

    async def work(self, arguments: JsonObject, *, files: WorkspaceFiles, context: ToolContext) -> ToolResult:
        """Read the file and remember that the session has seen it."""
        read = await finished(lambda: self._read(files, arguments["path"]))
        if isinstance(read, ToolResult):
            return read
        path, data, size = read
        kind = image_type(data)
        if kind is not None:
            return await _image(path, data, kind=kind, context=context)
        text = await finished(lambda: TextFile.decode(data, is_cut=size > len(data)))
        if text is None:
            return ToolResult(
                f"{path} is {binary_kind(data)}, {size} bytes: it cannot be shown as text. "
                f"Its first bytes are {data[:16].hex(' ')}."
            )
        page = Page(
            whole_number(arguments, "offset", default=1),
            whole_number(arguments, "limit", default=DEFAULT_LINES),
            whole_number(arguments, "column", default=1),
            self._room,
        )
        return await finished(lambda: numbered(text, page, size=size, is_cut=size > len(data)))

    def _read(self, files: WorkspaceFiles, asked: str) -> tuple[str, bytes, int] | ToolResult:
        path = files.resolve(asked)
        entry = files.stat(path)
        if entry is not None and entry.kind == "directory":
            return failure(f"{path or '.'} is a directory. Use list_dir to see what is in it.", word="is_directory")
        if entry is not None and entry.kind == "other":
            return failure(f"{path} is neither a file nor a directory: it cannot be read.", word="not_a_file")
        data = files.read(path, max_bytes=MAX_FILE_BYTES + 1)
        is_cut = len(data) > MAX_FILE_BYTES
        if entry is not None:
            self.seen.note(path, entry, data=None if is_cut else data)
        if is_cut:
            return path, data[:MAX_FILE_BYTES], max(entry.size if entry is not None else 0, len(data))
        return path, data, len(data)


def numbered(file: TextFile, page: Page, *, size: int, is_cut: bool) -> ToolResult:
    """Return the asked part of a text as numbered lines, and what to know about it."""
    lines = file.text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        return ToolResult("[The file is empty.]")
    if page.offset > len(lines):
        return failure(f"There is no line {page.offset}: the file has {len(lines)} lines.", word="offset")
    shown: list[str] = []
    remarks: list[str] = []
    room = page.room
    for number in range(page.offset, min(len(lines), page.offset - 1 + page.limit) + 1):
        column = page.column if number == page.offset else 1
        line, goes_on = _line(lines[number - 1].removesuffix("\r"), column, room=page.room)
        line = f"{number:>6}\t{line}"
        if shown and len(line) >= room:
            break
        shown.append(line)
        room -= len(line) + 1
        if goes_on is not None:
            length = len(lines[number - 1])
            remarks.append(f"line {number} has {length} characters: read on with offset={number}, column={goes_on}")
    last = page.offset - 1 + len(shown)
    said = [f"lines {page.offset}-{last} of {'at least ' if is_cut else ''}{len(lines)}"]
    if last < len(lines):
        said.append(f"go on with offset={last + 1}")
    elif is_cut:
        said.append(f"the file has {size} bytes, of which only the first {MAX_FILE_BYTES} can be read here")
    elif not file.text.endswith("\n"):
        said.append("no line break at the end")
    said += [*remarks[:3], *file.remarks()]
    return ToolResult("\n".join([*shown, "[" + "; ".join(said) + "]"]))


def _line(line: str, column: int, *, room: int) -> tuple[str, int | None]:
    """Return a line from `column` on as it is shown, and the column at which it goes on where it is too long."""
    most = min(MAX_LINE_CHARACTERS, room - 8)
    piece = line[column - 1 : column - 1 + most]
    shown = visible_controls(piece)
    while len(shown) > most:  # written out, control characters take four places each
        piece = piece[: max(len(piece) * most // len(shown), 1)]
        shown = visible_controls(piece)
    reached = column - 1 + len(piece)
    return shown, reached + 1 if reached < len(line) else None


async def _image(path: str, data: bytes, *, kind: str, context: ToolContext) -> ToolResult:
    """Return an image as a content part, its bytes in a blob of the session."""
    told = f"{path}: {kind}, {len(data)} bytes"
    if len(data) > MAX_IMAGE_BYTES:
        return ToolResult(f"{told}. It is too big to be shown (at most {MAX_IMAGE_BYTES} bytes).")
    part: dict[str, Any] = {"type": "media", "media_type": kind, "size": len(data), "name": path.rsplit("/", 1)[-1]}
    if context.put_blob is not None:
        part["blob"] = await context.put_blob(data)
    elif len(data) <= INLINE_IMAGE_BYTES:
        part["data"] = base64.b64encode(data).decode("ascii")
    else:
        return ToolResult(f"{told}. It cannot be shown here.")
    return ToolResult([{"type": "text", "text": told}, part])
