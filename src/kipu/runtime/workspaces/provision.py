"""Make, choose, open, bring back and remove the directories of sessions."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kipu.errors import GitError, WorkspaceError
from kipu.events.ids import check_session_id
from kipu.ports.clock import Clock
from kipu.ports.home_path import home_path
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.path_policy import PathPolicy
from kipu.runtime.workspaces.place import Placing
from kipu.runtime.workspaces.record import DirectoryIdentity, WorkspaceRecord
from kipu.runtime.workspaces.snapshot import SnapshotLimits

BRANCH_PREFIX = "kipu/"
_PRIVATE_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Removal:
    """What removing a workspace did: whether the directory went, and the branch that stays because it holds commits."""

    is_removed: bool
    kept_branch: str | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceProvision:
    """Make workspaces below `base`, all with the same policy. `own_places` (the store) are closed where they lie inside one.

    `base/<session_id>` holds a private directory or a worktree; nothing is ever written into a directory that a user chose.
    """

    base: Path
    policy: PathPolicy = field(default_factory=PathPolicy)
    own_places: tuple[Path, ...] = ()
    git: GitProgram = field(default_factory=GitProgram)
    clock: Clock | None = None
    limits: SnapshotLimits | None = None
    placing: Placing | None = None

    async def private(self, session_id: str) -> LocalWorkspace:
        """Return the session's own directory, made if it is not there, and nobody else's to read. Raises: WorkspaceError."""
        return await asyncio.to_thread(self._private, session_id)

    async def worktree(self, session_id: str, *, repository: Path) -> LocalWorkspace:
        """Return a worktree of the repository around `repository`, on the branch `kipu/<session_id>` made from its HEAD.

        Where the branch is there already (the worktree was removed), it is checked out as it stands. Hooks do not run.
        Raises: GitError (no git, no repository, no commit yet, the branch is checked out elsewhere).
        """
        return await asyncio.to_thread(self._worktree, session_id, repository)

    async def directory(self, session_id: str, *, path: Path) -> LocalWorkspace:
        """Return a directory that somebody chose, as it is. Raises: WorkspaceError (it is not there, or no directory)."""
        return await asyncio.to_thread(self._directory, session_id, path)

    async def for_fork(self, record: WorkspaceRecord | Mapping[str, Any], session_id: str) -> LocalWorkspace:
        """Return a workspace of the same kind for a fork: its own directory, empty or at the parent's last commit.

        `checkpoints.fork_files` then brings the files of the fork's point into it. A chosen directory stays the one that was
        chosen, and is shared (see `sharing`). Raises: GitError, WorkspaceError.
        """
        record = _record(record)
        if record.kind == "private":
            return await self.private(session_id)
        if record.kind == "directory":
            return await self.directory(session_id, path=Path(record.path))
        return await asyncio.to_thread(self._fork_worktree, record, session_id)

    async def open(self, record: WorkspaceRecord | Mapping[str, Any]) -> LocalWorkspace:
        """Return the workspace of a head's record, found again where it was moved; a missing one is told by its `state`.

        Raises: WorkspaceError (the record cannot be read).
        """
        return await asyncio.to_thread(self._open, record)

    async def bring_back(self, record: WorkspaceRecord | Mapping[str, Any]) -> LocalWorkspace:
        """Return the workspace of `record`, made again where it is missing: empty, or the branch as it was committed.

        Raises: WorkspaceError (a chosen directory is the user's to bring back), GitError.
        """
        record = _record(record)
        workspace = await self.open(record)
        if await workspace.state() != "missing":
            return workspace
        if record.kind == "private":
            await asyncio.to_thread(_make_private, Path(record.path))
        elif record.kind == "worktree":
            await asyncio.to_thread(self._add_again, record)
        return await self.open(record)

    async def remove(self, workspace: LocalWorkspace, *, force: bool = False) -> Removal:
        """Remove what was made for the session, and nothing else: never a chosen directory, never a branch with commits.

        Raises: GitError (a worktree with changes that no commit has, unless `force`), WorkspaceError.
        """
        return await asyncio.to_thread(self._remove, workspace, force)

    # ---- making ----------------------------------------------------------------------------------------------------

    def _private(self, session_id: str) -> LocalWorkspace:
        path = self.base / check_session_id(session_id)
        record = self._placed(WorkspaceRecord("private", str(path), session_id))  # before: a mount may be missing
        _make_private(path)
        return self._at(record)

    def _worktree(self, session_id: str, repository: Path) -> LocalWorkspace:
        branch = BRANCH_PREFIX + check_session_id(session_id)
        around = Path(self.git.text("rev-parse", "--show-toplevel", cwd=repository))
        common = self.git.text("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=around)
        head = self.git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=around)
        if head.status != 0:
            raise GitError(root=str(around), reason="it has no commit yet, so there is nothing to make a worktree of")
        path = self.base / session_id
        _make_private(self.base)
        record = WorkspaceRecord(
            "worktree", str(path), session_id, repository=str(around), git_dir=common, branch=branch, base=head.text
        )
        self._add(record)
        return self._at(self._placed(record))

    def _placed(self, record: WorkspaceRecord) -> WorkspaceRecord:
        """Return a new record with what its files are bound to."""
        place = None if self.placing is None else self.placing.place_of(record.kind, record.path)
        return record if place is None else replace(record, place=place)

    def _fork_worktree(self, parent: WorkspaceRecord, session_id: str) -> LocalWorkspace:
        git_dir, branch = Path(str(parent.git_dir)), BRANCH_PREFIX + check_session_id(session_id)
        tip = self.git.text(
            "rev-parse", "--verify", f"refs/heads/{parent.branch}^{{commit}}", cwd=git_dir, git_dir=git_dir
        )
        record = replace(
            parent, path=str(self.base / session_id), session_id=session_id, identity=None, branch=branch, base=tip
        )
        _make_private(self.base)
        self._add(record)
        return self._at(record)

    def _add(self, record: WorkspaceRecord) -> None:
        around, branch = Path(str(record.git_dir)), str(record.branch)
        self.git.text("worktree", "prune", cwd=around, git_dir=around)
        known = self.git.run("rev-parse", "--verify", "-q", f"refs/heads/{branch}", cwd=around, git_dir=around)
        told = (
            [record.path, branch] if known.status == 0 else ["-b", branch, "--no-track", record.path, str(record.base)]
        )
        self.git.text("worktree", "add", "--quiet", *told, cwd=around, git_dir=around, converts=True)

    def _add_again(self, record: WorkspaceRecord) -> None:
        if record.git_dir is None or record.branch is None or record.base is None:
            raise WorkspaceError(
                root=record.path, reason="its record does not say of which repository it was a worktree"
            )
        if not Path(record.git_dir).is_dir():
            raise GitError(root=record.path, reason=f"its repository {record.git_dir} is gone too")
        self._add(record)

    def _directory(self, session_id: str, path: Path) -> LocalWorkspace:
        real = Path(os.path.realpath(home_path(path)))
        if not real.is_dir():
            reason = "it is not a directory" if real.exists() else "there is no such directory"
            raise WorkspaceError(root=str(path), reason=reason)
        return self._at(self._placed(WorkspaceRecord("directory", str(real), session_id)))

    # ---- opening and removing --------------------------------------------------------------------------------------

    def _open(self, record: WorkspaceRecord | Mapping[str, Any]) -> LocalWorkspace:
        return self._at(_record(record))

    def _at(self, record: WorkspaceRecord) -> LocalWorkspace:
        return LocalWorkspace(
            record,
            policy=self.policy,
            own_places=(*self.own_places, self.base),  # around it, a chosen directory would show every session's files
            git=self.git,
            clock=self.clock,
            limits=self.limits,
        )

    def _remove(self, workspace: LocalWorkspace, force: bool) -> Removal:
        record = workspace.record
        if record.kind == "worktree":
            return self._remove_worktree(record, force)
        if record.kind == "directory" or DirectoryIdentity.of(workspace.root) is None:
            return Removal(is_removed=False)
        if workspace.root.parent != Path(os.path.realpath(self.base)):
            raise WorkspaceError(root=str(workspace.root), reason=f"it does not lie in {self.base}; remove it yourself")
        shutil.rmtree(workspace.root)
        return Removal(is_removed=True)

    def _remove_worktree(self, record: WorkspaceRecord, force: bool) -> Removal:
        around, branch = Path(str(record.git_dir)), str(record.branch)
        is_there = Path(record.path).is_dir()
        if is_there:
            forced = ["--force"] if force else []
            self.git.text("worktree", "remove", *forced, record.path, cwd=around, git_dir=around, converts=True)
        self.git.text("worktree", "prune", cwd=around, git_dir=around)
        # Only a branch that holds nothing of its own goes; what the session committed stays under its name.
        own = self.git.run("rev-list", "--count", f"{record.base}..refs/heads/{branch}", cwd=around, git_dir=around)
        if own.status != 0 or own.text != "0":
            return Removal(is_there, kept_branch=branch if own.status == 0 else None)
        self.git.text("branch", "-D", "--quiet", branch, cwd=around, git_dir=around)
        return Removal(is_there)


def _record(record: WorkspaceRecord | Mapping[str, Any]) -> WorkspaceRecord:
    return record if isinstance(record, WorkspaceRecord) else WorkspaceRecord.from_json(record)


def _make_private(path: Path) -> None:
    """Make a directory that only its owner reads; those above it that are missing too are made the same way."""
    for folder in reversed([path, *path.parents]):
        try:
            folder.mkdir(mode=_PRIVATE_MODE)
        except FileExistsError:
            continue
        except OSError as error:
            if folder.is_dir():
                continue
            raise WorkspaceError(root=str(path), reason=error.strerror or str(error)) from error
    if path.is_symlink() or not path.is_dir():
        raise WorkspaceError(root=str(path), reason="something else stands in its place")
