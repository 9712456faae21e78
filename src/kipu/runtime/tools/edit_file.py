"""`edit_file`: exact replacements in one file, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kipu.errors import WorkspaceError
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.ports.workspace import FileEntry, WorkspaceFiles
from kipu.runtime.tools.change_diff import changed_lines, unified_diff
from kipu.runtime.tools.file_tool import MAX_FILE_BYTES, FileTool, failure, finished
from kipu.runtime.tools.seen_files import SeenFiles
from kipu.runtime.tools.text_edit import EditFailure, TextEdit, apply_edits
from kipu.runtime.tools.text_file import TextFile, binary_kind

SPEC = ToolSpec(
    name="edit_file",
    description=(
        "Change a file by replacing exact text. Give one or more edits; they are made in order, each on what the one before "
        "left, and all of them or none. old_text must be in the file exactly once, white space included and without the "
        "line numbers of read_file; give as many lines around as make it unique, or set replace_all. Read the file first. "
        "Line endings and encoding of the file stay."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path of the file, relative to the workspace."},
            "edits": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "old_text": {"type": "string", "description": "The exact text to replace."},
                        "new_text": {"type": "string", "description": "What takes its place; empty removes it."},
                        "replace_all": {
                            "type": "boolean",
                            "description": "Replace every occurrence. Default: false, and there must be exactly one.",
                        },
                    },
                    "required": ["old_text", "new_text"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class EditPlan:
    """An edit that can be made: the file as it is, and as it will be."""

    path: str
    entry: FileEntry
    before: TextFile
    after: TextFile
    counts: tuple[int, ...]


class EditFile(FileTool):
    """Replace exact text in a file that the session has read as it is now."""

    def __init__(self, *, seen: SeenFiles | None = None, root: Path | None = None) -> None:
        super().__init__(SPEC, seen=seen, root=root)

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return the change as a diff, or why it cannot be made."""
        subject = self.subject(arguments)
        if context.workspace is None:
            return ToolPreview(f"edit {subject}: there is no workspace")
        files = context.workspace.files
        try:
            plan = await finished(lambda: self._plan(arguments, files))
        except (WorkspaceError, OSError, ValueError) as error:
            return ToolPreview(f"edit {subject}, which will fail: {error}")
        if isinstance(plan, ToolResult):
            return ToolPreview(f"edit {subject}, which will fail: {plan.content}")
        return await finished(lambda: _shown(subject, plan))

    async def work(self, arguments: JsonObject, *, files: WorkspaceFiles, context: ToolContext) -> ToolResult:
        """Make the edits, if the file is as the session saw it last."""
        async with self.seen.lock:
            return await finished(lambda: self._edit(arguments, files))

    def _edit(self, arguments: JsonObject, files: WorkspaceFiles) -> ToolResult:
        plan = self._plan(arguments, files)
        if isinstance(plan, ToolResult):
            return plan
        path = plan.path
        data = plan.after.encoded()
        if files.stat(path) != plan.entry:
            return changed_result(path)
        files.write(path, data)
        entry = files.stat(path)
        if entry is not None:
            self.seen.note(path, entry, data=data)
        added, removed = changed_lines(plan.before.text, plan.after.text)
        places = sum(plan.counts)
        told = f"Edited {path}: {places} {'place' if places == 1 else 'places'}, +{added} -{removed} lines."
        return ToolResult(f"{told}\n{unified_diff(plan.before.text, plan.after.text, path=path)[:4000]}")

    def _plan(self, arguments: JsonObject, files: WorkspaceFiles) -> EditPlan | ToolResult:
        path = files.resolve(arguments["path"])
        entry = files.stat(path)
        if entry is not None and entry.kind in ("directory", "other"):
            return failure(f"{path or '.'} is not a file.", word="not_a_file")
        data = files.read(path, max_bytes=MAX_FILE_BYTES + 1)
        if entry is None or len(data) > MAX_FILE_BYTES:
            return failure(f"{path} has more than {MAX_FILE_BYTES} bytes: edit it with a command.", word="too_big")
        before = TextFile.decode(data)
        if before is None:
            return failure(f"{path} is {binary_kind(data)}: only text can be edited.", word="binary")
        knowledge = self.seen.knowledge(path, entry, data=data)
        if knowledge == "changed":
            return changed_result(path)
        if knowledge == "unread":
            return failure(
                f"You have not read {path} yet. Read it first, then edit it. Nothing was changed.", word="unread"
            )
        edits = [TextEdit(e["old_text"], e["new_text"], bool(e.get("replace_all"))) for e in arguments["edits"]]
        edited = apply_edits(before.text, edits, newline=before.newline)
        if isinstance(edited, EditFailure):
            return failure(f"{path}: {edited.text}", word=edited.word)
        if edited.text == before.text:
            return failure(f"{path}: the edits together change nothing.", word="no_change")
        after = before.with_text(edited.text)
        try:
            after.encoded()
        except UnicodeEncodeError as error:
            character = error.object[error.start : error.start + 1]
            return failure(
                f"{path} is encoded as {before.encoding.upper()}, which has no {character!a}. Nothing was changed.",
                word="encoding",
            )
        return EditPlan(path, entry, before, after, edited.counts)


def changed_result(path: str) -> ToolResult:
    """Return that a file is not as the session saw it last."""
    return failure(
        f"{path} has changed since you read it, so nothing was changed. Read it again, then decide again.",
        word="changed",
    )


def _shown(subject: str, plan: EditPlan) -> ToolPreview:
    added, removed = changed_lines(plan.before.text, plan.after.text)
    return ToolPreview(
        f"edit {subject}: +{added} -{removed} lines", unified_diff(plan.before.text, plan.after.text, path=subject)
    )
