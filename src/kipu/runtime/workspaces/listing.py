"""Which paths of a directory belong to its snapshots: what version control would keep, repositories inside included."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kipu.errors import WorkspaceMissingError
from kipu.runtime.workspaces.beneath import is_temporary
from kipu.runtime.workspaces.git import GitProgram

# Folders that programs fill and can fill again. Below a repository its own ignore rules decide.
HEAVY_FOLDERS = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache", ".gradle", ".terraform"),
    }
)
DEEPEST_REPOSITORY = 16
HISTORIES = frozenset({".git", ".hg", ".svn", ".jj"})  # heavy, and not to be had again


@dataclass(slots=True)
class TreeListing:
    """Paths relative to the root, of files, links and whatever else has a name; what was left out is counted."""

    paths: dict[str, os.stat_result | None] = field(default_factory=dict)  # the status where it was looked at already
    left_out: Counter[str] = field(default_factory=Counter)
    heavy: list[str] = field(default_factory=list)  # folders that were left out, where they are asked for
    empty: list[str] = field(default_factory=list)  # folders without anything in them, likewise
    is_cut: bool = False  # there are more than `most` paths, and these are only some


class _Lister:
    def __init__(self, root: Path, *, git: GitProgram, most: int) -> None:
        self._root = root
        self._text = str(root)
        self._git = git
        self._most = most
        self.listing = TreeListing()

    def repository(self, below: str, *, depth: int = 0) -> bool:
        """List what git sees in a directory; return False where git does not know it."""
        cwd = self._root / below
        if not self._git.is_there:
            return False
        listed = self._git.run("ls-files", "-co", "--exclude-standard", "-z", cwd=cwd)
        if listed.status != 0:
            return False
        ignored = self._git.run("ls-files", "-oi", "--exclude-standard", "--directory", "-z", cwd=cwd)
        self.listing.left_out["ignored"] += ignored.stdout.count(b"\0")
        for name in os.fsdecode(listed.stdout).split("\0"):
            if name and not name.startswith(("../", "/")):
                self._add(below, name, depth=depth)
        return True

    def _add(self, below: str, name: str, *, depth: int) -> None:
        path = f"{below}/{name}" if below else name
        status = None if name.endswith("/") else self._status(path)
        # A directory among the names is a repository within: git lists it by its name only.
        if status is not None and not stat.S_ISDIR(status.st_mode):
            self.put(path, status)
        elif status is None and not name.endswith("/"):
            return  # tracked and deleted
        elif depth >= DEEPEST_REPOSITORY or not self.repository(path.rstrip("/"), depth=depth + 1):
            self.listing.left_out["repositories"] += 1

    def _status(self, path: str) -> os.stat_result | None:
        try:  # not by pathlib: this runs once for every file
            return os.lstat(f"{self._text}/{path}")
        except OSError:
            return None

    def walk(self, below: str) -> None:
        """List everything but heavy folders; repositories on the way are listed as git sees them."""
        waiting = [below]
        while waiting and not self.listing.is_cut:
            folder = waiting.pop()
            for entry in self._scan(folder):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not entry.is_dir(follow_symlinks=False):
                    self.put(path)
                elif entry.name in HEAVY_FOLDERS:
                    self.listing.left_out["ignored"] += 1
                elif not ((self._root / path / ".git").exists() and self.repository(path)):
                    waiting.append(path)

    def everything(self) -> None:
        """List all that is there, histories and what they ignore included, but for folders that programs can fill again."""
        waiting = [""]
        while waiting and not self.listing.is_cut:
            folder = waiting.pop()
            entries = self._scan(folder)
            if folder and not entries:
                self.listing.empty.append(folder)
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not entry.is_dir(follow_symlinks=False):
                    self.put(path)
                elif entry.name in HEAVY_FOLDERS - HISTORIES:
                    self.listing.heavy.append(path)
                else:
                    waiting.append(path)

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / folder) as entries:
                return list(entries)
        except OSError:
            self.listing.left_out["unreadable"] += 1
            return []

    def put(self, path: str, status: os.stat_result | None = None) -> None:
        if is_temporary(path.rpartition("/")[2]):
            return
        if len(self.listing.paths) >= self._most:
            self.listing.is_cut = True
            self.listing.left_out["too_many"] += 1
            return
        self.listing.paths[path] = status


def list_tree(root: Path, *, git: GitProgram, most: int, own_repository: bool) -> TreeListing:
    """Return the paths beneath `root`. Blocking.

    With `own_repository` a repository counts only where it begins at the root or below: that of a folder around a private
    workspace says nothing about what is in it. Raises: WorkspaceMissingError, GitError.
    """
    if not root.is_dir():
        raise WorkspaceMissingError(root=str(root))
    lister = _Lister(root, git=git, most=most)
    if not (_in_repository(root, git=git, own=own_repository) and lister.repository("")):
        lister.walk("")
    return lister.listing


def list_everything(root: Path, *, git: GitProgram, most: int) -> TreeListing:
    """Return all paths beneath `root` that have to be carried to be there elsewhere. Blocking. Raises: WorkspaceMissingError."""
    if not root.is_dir():
        raise WorkspaceMissingError(root=str(root))
    lister = _Lister(root, git=git, most=most)
    lister.everything()
    lister.listing.empty.sort()
    return lister.listing


def _in_repository(root: Path, *, git: GitProgram, own: bool) -> bool:
    if (root / ".git").exists():
        return True
    if own or not git.is_there:
        return False
    # 0: ignored by the repository around it, 1: not ignored, 128: there is no repository.
    return git.run("check-ignore", "-q", ".", cwd=root).status == 1
