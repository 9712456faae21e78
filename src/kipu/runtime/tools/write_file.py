"""`write_file`: a whole file, new or in the place of one that the session knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kipu.errors import WorkspaceError
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.ports.workspace import FileEntry, WorkspaceFiles
from kipu.runtime.tools.change_diff import changed_lines, unified_diff
from kipu.runtime.tools.edit_file import changed_result
from kipu.runtime.tools.file_tool import MAX_FILE_BYTES, FileTool, failure, finished
from kipu.runtime.tools.seen_files import SeenFiles
from kipu.runtime.tools.text_file import TextFile

SPEC = ToolSpec(
    name="write_file",
    description=(
        "Write a whole file, as UTF-8 and exactly as given; directories that are missing are made. A file that is there "
        "already must have been read before. To change a part of a file use edit_file instead."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path of the file, relative to the workspace."},
            "content": {"type": "string", "description": "The whole content of the file."},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    is_idempotent=True,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is at a path now: nothing (`entry` None), or a file with its bytes (None when it is too big to be read)."""

    entry: FileEntry | None
    data: bytes | None

    @property
    def text(self) -> str | None:
        """Return the text that is there, "" for what is none, None where there is no file."""
        if self.entry is None:
            return None
        file = TextFile.decode(self.data) if self.data is not None else None
        return "" if file is None else file.text


class WriteFile(FileTool):
    """Write a whole file. What the session does not know is not overwritten; the same content again is no failure."""

    def __init__(self, *, seen: SeenFiles | None = None, root: Path | None = None) -> None:
        super().__init__(SPEC, seen=seen, root=root)

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return the change as a diff, or why it cannot be made."""
        subject = self.subject(arguments)
        if context.workspace is None:
            return ToolPreview(f"write {subject}: there is no workspace")
        files, content = context.workspace.files, arguments["content"]
        try:
            path, there = await finished(lambda: _standing(files, arguments["path"]))
        except (WorkspaceError, OSError, ValueError) as error:
            return ToolPreview(f"write {subject}, which will fail: {error}")
        refused = self._refusal(path, there, content)
        if refused is not None:
            return ToolPreview(f"write {subject}, which will fail: {refused.content}")
        return await finished(lambda: _shown(subject, there, content))

    async def work(self, arguments: JsonObject, *, files: WorkspaceFiles, context: ToolContext) -> ToolResult:
        """Write the file, whole or not at all."""
        async with self.seen.lock:
            return await finished(lambda: self._write(arguments, files))

    def _write(self, arguments: JsonObject, files: WorkspaceFiles) -> ToolResult:
        content: str = arguments["content"]
        path, there = _standing(files, arguments["path"])
        refused = self._refusal(path, there, content)
        if refused is not None:
            return refused
        data = content.encode()
        if there.data == data and there.entry is not None:
            self.seen.note(path, there.entry, data=data)
            return ToolResult(f"{path} has exactly this content already.")
        if files.stat(path) != there.entry:
            return changed_result(path)
        files.write(path, data)
        entry = files.stat(path)
        if entry is not None:
            self.seen.note(path, entry, data=data)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        verb = "Created" if there.entry is None else "Overwrote"
        return ToolResult(f"{verb} {path}: {lines} lines, {len(data)} bytes.{_remark(there)}")

    def _refusal(self, path: str, there: Standing, content: str) -> ToolResult | None:
        if not path or (there.entry is not None and there.entry.kind in ("directory", "other")):
            return failure(f"{path or '.'} is not a file: it cannot be overwritten.", word="not_a_file")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            return failure(
                "The content has half of a character (a lone surrogate) in it; give it whole.", word="encoding"
            )
        if there.entry is None or there.data == data:
            return None
        knowledge = self.seen.knowledge(path, there.entry, data=there.data)
        if knowledge == "unread":
            return failure(
                f"{path} is there already and you have not read it. Read it first. Nothing was changed.", word="unread"
            )
        return changed_result(path) if knowledge == "changed" else None


def _standing(files: WorkspaceFiles, asked: str) -> tuple[str, Standing]:
    path = files.resolve(asked)
    entry = files.stat(path)
    if entry is None or entry.kind in ("directory", "other"):
        return path, Standing(entry, None)
    data = files.read(path, max_bytes=MAX_FILE_BYTES + 1)
    return path, Standing(entry, None if len(data) > MAX_FILE_BYTES else data)


def _remark(there: Standing) -> str:
    file = None if there.data is None else TextFile.decode(there.data)
    if file is None:
        return ""
    was = [remark for remark in file.remarks() if remark] + (["a byte order mark"] if file.mark else [])
    return f" It had before: {', '.join(was)}." if was else ""


def _shown(subject: str, there: Standing, content: str) -> ToolPreview:
    added, removed = changed_lines(there.text, content)
    verb = "create" if there.entry is None else "overwrite"
    return ToolPreview(f"{verb} {subject}: +{added} -{removed} lines", unified_diff(there.text, content, path=subject))
