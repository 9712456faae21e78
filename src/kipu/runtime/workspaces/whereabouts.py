"""Where a recorded directory is now: in its place, somewhere near under another name, or nowhere that is known."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kipu.errors import GitError
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.record import DirectoryIdentity, WorkspaceRecord

_LOOKED_AT = 2000  # neighbours: a folder of many thousand sessions is not searched whole


class Whereabouts(NamedTuple):
    """The directory's path now, None when it is missing, and its identity."""

    path: Path | None
    identity: DirectoryIdentity | None


def find(record: WorkspaceRecord, *, git: GitProgram) -> Whereabouts:
    """Return where the directory of `record` is. Blocking, and never an error.

    Its own path wins. A worktree that is not there is asked of git (`git worktree move`); any directory is then looked for
    by its identity beside its old place and one level up and down from there: a rename, or a move within the same parent.
    """
    path = Path(record.path)
    identity = DirectoryIdentity.of(path)
    if identity is not None and (record.kind != "worktree" or _is_worktree(path)):
        return Whereabouts(Path(os.path.realpath(path)), identity)
    for candidate in (*_worktrees(record, git=git), *_neighbours(record)):
        found = DirectoryIdentity.of(candidate)
        if found is not None:
            return Whereabouts(Path(os.path.realpath(candidate)), found)
    return Whereabouts(None, None)


def _is_worktree(path: Path) -> bool:
    return (path / ".git").exists()


def _worktrees(record: WorkspaceRecord, *, git: GitProgram) -> list[Path]:
    """Return where git has the session's branch checked out."""
    if record.kind != "worktree" or record.git_dir is None or record.branch is None:
        return []
    try:
        listed = git.text(
            "worktree", "list", "--porcelain", "-z", cwd=Path(record.git_dir), git_dir=Path(record.git_dir)
        )
    except GitError:
        return []
    paths: list[Path] = []
    for entry in listed.split("\0\0"):
        fields = dict(line.partition(" ")[::2] for line in entry.split("\0") if line)
        if fields.get("branch") == f"refs/heads/{record.branch}" and "worktree" in fields:
            paths.append(Path(fields["worktree"]))
    return [path for path in paths if _is_worktree(path)]


def _neighbours(record: WorkspaceRecord) -> Iterator[Path]:
    """Yield the directories near the old place that are the recorded one."""
    identity = record.identity
    if identity is None or not identity.born_ns:  # inodes alone are used again
        return
    old = Path(record.path)
    beside = list(_directories(old.parent))
    for entry in (*beside, *_directories(old.parent.parent), *_within(beside)):
        if entry.inode() == identity.inode and identity.matches(DirectoryIdentity.of(Path(entry.path))):
            yield Path(entry.path)


def _within(folders: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    for folder in folders:
        yield from _directories(Path(folder.path))


def _directories(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in islice(entries, _LOOKED_AT) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
