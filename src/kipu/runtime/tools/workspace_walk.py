"""Walking a workspace through its own access, without what version control ignores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kipu.errors import WorkspaceError
from kipu.ports.workspace import FileEntry, WorkspaceFiles
from kipu.runtime.tools.ignore_rules import IgnoreRules

MAX_DEPTH = 64
MAX_RULES_BYTES = 200_000
RULES_FILE = ".gitignore"


def rules_in(
    files: WorkspaceFiles, directory: str, *, rules: IgnoreRules, entries: Sequence[FileEntry] | None = None
) -> IgnoreRules:
    """Return `rules` with those of the directory's own `.gitignore`, where there is one that can be read."""
    path = f"{directory}/{RULES_FILE}" if directory else RULES_FILE
    if entries is not None and not any(entry.path == path and entry.kind == "file" for entry in entries):
        return rules
    try:
        data = files.read(path, max_bytes=MAX_RULES_BYTES)
    except (WorkspaceError, OSError):
        return rules
    return rules.below(directory, data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))


def rules_above(files: WorkspaceFiles, directory: str) -> IgnoreRules:
    """Return the rules of the directories from the root down to the one above `directory`."""
    rules = IgnoreRules()
    parts = directory.split("/") if directory else []
    for count in range(len(parts)):
        rules = rules_in(files, "/".join(parts[:count]), rules=rules)
    return rules


def walk_files(
    files: WorkspaceFiles, directory: str = "", *, rules: IgnoreRules | None = None, depth: int = 0
) -> Iterator[FileEntry]:
    """Yield the files below a directory in the order of their names, hidden ones too, links and `.git` not.

    What cannot be listed is passed over, and so is what lies deeper than 64 levels.
    """
    if rules is None:
        rules = rules_above(files, directory)
    try:
        entries = sorted(files.list(directory), key=lambda entry: entry.path.encode("utf-8", "surrogateescape"))
    except (WorkspaceError, OSError):
        return
    rules = rules_in(files, directory, rules=rules, entries=entries)
    for entry in entries:
        if entry.path.rsplit("/", 1)[-1] == ".git":
            continue
        if entry.kind == "file" and not rules.leave_out(entry.path, is_directory=False):
            yield entry
        elif entry.kind == "directory" and depth < MAX_DEPTH and not rules.leave_out(entry.path, is_directory=True):
            yield from walk_files(files, entry.path, rules=rules, depth=depth + 1)
