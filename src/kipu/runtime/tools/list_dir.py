"""`list_dir`: what is in a directory, down to a depth, with sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kipu.errors import WorkspaceError
from kipu.ports.tool import JsonObject, ToolContext, ToolResult, ToolSpec
from kipu.ports.workspace import FileEntry, WorkspaceFiles
from kipu.runtime.tools.file_tool import FileTool, failure, finished, whole_number
from kipu.runtime.tools.ignore_rules import IgnoreRules
from kipu.runtime.tools.terminal_text import visible_controls
from kipu.runtime.tools.workspace_walk import rules_in

MAX_DEPTH = 8
DEFAULT_ENTRIES = 300
MAX_ENTRIES = 2_000

SPEC = ToolSpec(
    name="list_dir",
    description=(
        "List a directory of the workspace: directories end with '/', links with '@', files have their size in bytes. With a "
        "depth above 1 the directories in it are listed too, but for .git and what .gitignore leaves out."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The directory, relative to the workspace. Default: its root."},
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_DEPTH,
                "description": "How many levels to list. Default: 1.",
            },
            "max_entries": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_ENTRIES,
                "description": f"How many entries at most. Default: {DEFAULT_ENTRIES}.",
            },
        },
        "additionalProperties": False,
    },
    is_idempotent=True,
    has_side_effect=False,
    default_policy="allow",
)


@dataclass(slots=True)
class _Listing:
    files: WorkspaceFiles
    depth: int
    room: int
    lines: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, directory: str, rules: IgnoreRules, *, level: int) -> None:
        """Add the entries of one directory, and those below as far as is asked."""
        entries = self.files.list(directory)
        if self.depth > 1:
            rules = rules_in(self.files, directory, rules=rules, entries=entries)
        for entry in entries:
            if len(self.lines) >= self.room:
                self.left_out += 1
                continue
            is_directory = entry.kind == "directory"
            closed = is_directory and (_name(entry) == ".git" or rules.leave_out(entry.path, is_directory=True))
            opened = is_directory and level < self.depth and not closed
            note = "  (not listed)" if closed and level < self.depth else ""
            self.lines.append("  " * (level - 1) + _told(entry) + note)
            if opened:
                self._add_below(entry, rules, level=level)

    def _add_below(self, entry: FileEntry, rules: IgnoreRules, *, level: int) -> None:
        try:
            self.add(entry.path, rules, level=level + 1)
        except (WorkspaceError, OSError) as error:
            self.lines.append("  " * level + f"({visible_controls(str(error))})")


class ListDirectory(FileTool):
    """List a directory of the workspace, bounded."""

    def __init__(self, *, root: Path | None = None) -> None:
        super().__init__(SPEC, root=root)

    async def work(self, arguments: JsonObject, *, files: WorkspaceFiles, context: ToolContext) -> ToolResult:
        """Return the entries as an indented list."""
        return await finished(lambda: _listed(arguments, files))


def _listed(arguments: JsonObject, files: WorkspaceFiles) -> ToolResult:
    path = files.resolve(arguments.get("path") or "")
    entry = files.stat(path) if path else None
    if entry is not None and entry.kind != "directory":
        return failure(f"{path} is not a directory. Use read_file to see it.", word="not_a_directory")
    listing = _Listing(
        files,
        whole_number(arguments, "depth", default=1),
        whole_number(arguments, "max_entries", default=DEFAULT_ENTRIES),
    )
    listing.add(path, IgnoreRules(), level=1)
    if not listing.lines:
        return ToolResult(f"{path or '.'}/ is empty.")
    said = [f"{path or '.'}/", *listing.lines]
    if listing.left_out:
        said.append(
            f"[{listing.left_out} more entries are not shown here, nor what lies in them; "
            "list a directory further down, or ask for more with max_entries]"
        )
    return ToolResult("\n".join(said))


def _name(entry: FileEntry) -> str:
    return entry.path.rsplit("/", 1)[-1]


def _told(entry: FileEntry) -> str:
    name = visible_controls(_name(entry)).replace("\n", "\\n")
    if entry.kind == "directory":
        return name + "/"
    if entry.kind == "link":
        return name + "@"
    return f"{name}  {entry.size}" if entry.kind == "file" else f"{name}  (neither file nor directory)"
