"""`LocalWorkspace`: a session's directory on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.errors import GitError, WorkspaceError
from kipu.ports.clock import Clock
from kipu.ports.workspace import GetBlob, PutBlob, WorkspaceKind, WorkspaceState
from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.difference import FileVersion, file_difference
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.manifest import Contents, Manifest
from kipu.runtime.workspaces.path_policy import OPEN_POLICY, PathPolicy
from kipu.runtime.workspaces.record import WorkspaceRecord
from kipu.runtime.workspaces.restore import Restoration
from kipu.runtime.workspaces.snapshot import SnapshotLimits, SnapshotTaker
from kipu.runtime.workspaces.whereabouts import Whereabouts, find
from kipu.stores.host import SystemClock

if TYPE_CHECKING:
    from kipu.runtime.workspaces.carried import CarriedFiles


class LocalWorkspace:
    """A session's directory (B41). Make one with `kipu.runtime.workspaces.provision`; a missing one is a state, not an error.

    Where the directory was moved and found again, `root` is where it is now, `state` is "moved", and `describe` is the
    record to keep from now on.
    """

    def __init__(
        self,
        record: WorkspaceRecord,
        *,
        policy: PathPolicy | None = None,
        own_places: Iterable[Path] = (),
        git: GitProgram | None = None,
        clock: Clock | None = None,
        limits: SnapshotLimits | None = None,
    ) -> None:
        self.git = git or GitProgram()
        self._clock = clock or SystemClock()
        self._recorded = record
        self.carried: CarriedFiles | None = None  # where its files are kept for other machines
        found = find(record, git=self.git)
        self._whereabouts = found
        root = found.path or Path(record.path)
        self.record = replace(record, path=str(root), identity=found.identity or record.identity)
        self._files = BeneathFiles(root, policy=(policy or PathPolicy()).without(root, places=own_places))
        self._taker = SnapshotTaker(
            self._files,
            git=self.git,
            clock=self._clock,
            limits=limits,
            own_repository=record.kind == "private",
        )

    @property
    def kind(self) -> WorkspaceKind:
        """Return private, worktree or directory."""
        return self.record.kind

    @property
    def root(self) -> Path:
        """Return the directory."""
        return self._files.root

    @property
    def files(self) -> BeneathFiles:
        """Return the access to it that nothing escapes."""
        return self._files

    def describe(self) -> dict[str, Any]:
        """Return what the session's head says of it from now on."""
        return self.record.to_json()

    async def state(self) -> WorkspaceState:
        """Return missing, else moved, else dirty (version control sees changes that no commit has), else present."""
        return await asyncio.to_thread(self._state)

    async def snapshot(self, put_blob: PutBlob) -> dict[str, Any]:
        """Return a manifest of the files as they are. Raises: WorkspaceMissingError, GitError."""
        return (await self.take(put_blob)).to_json()

    async def take(self, put_blob: PutBlob | None = None) -> Manifest:
        """Return the manifest as an object; without `put_blob` no content is kept."""
        return await self._taker.take(put_blob)

    def whole(self, limits: SnapshotLimits) -> SnapshotTaker:
        """Return what takes all of the files, to keep them for other machines: Kipu's own hand, bound by no policy for tools."""
        files = BeneathFiles(self._files.root, policy=OPEN_POLICY)
        return SnapshotTaker(files, git=self.git, clock=self._clock, limits=limits, whole=True, kept=self._taker.kept)

    def know(self, manifest: dict[str, Any]) -> None:
        """Take the contents of an earlier manifest of the same session for kept, so that they are not kept again."""
        self._taker.know(Manifest.from_json(manifest))

    async def restore(self, manifest: dict[str, Any], get_blob: GetBlob) -> list[str]:
        """Bring the files of the manifest back and return the paths that changed.

        Raises: RestoreError (some paths; the others are done), WorkspaceMissingError, BlobNotFoundError.
        """
        return await Restoration(self._taker, manifest=Manifest.from_json(manifest), get_blob=get_blob).run()

    async def diff(self, manifest: dict[str, Any], get_blob: GetBlob) -> str:
        """Return how the files now differ from the manifest, as a unified diff, "" when they do not."""
        before, after = Manifest.from_json(manifest), await self.take()
        contents = Contents(before, get_blob)
        texts: list[str] = []
        for path in sorted({*before.files, *before.links, *after.files, *after.links}):
            same_file = before.files.get(path) == after.files.get(path)
            if same_file and before.links.get(path) == after.links.get(path):
                continue
            if path in after.left_out and path not in after.files:
                texts.append(f"File {path} is left out of comparisons now: {after.left_out[path]}\n")
                continue
            if path in before.left_out:
                texts.append(f"File {path} was left out of the checkpoint: {before.left_out[path]}\n")
                continue
            old = await _kept_version(before, path, contents=contents)
            new = await asyncio.to_thread(self._version, after, path)
            texts.append(await asyncio.to_thread(file_difference, path, old, after=new))
        return "".join(texts)

    async def aclose(self) -> None:
        """Free what it holds; the files stay. Nothing is held open between calls."""

    def _version(self, manifest: Manifest, path: str) -> FileVersion | None:
        if path in manifest.links:
            return FileVersion(manifest.links[path].encode("utf-8", "surrogateescape"), is_link=True)
        state = manifest.files.get(path)
        if state is None:
            return None
        try:
            return FileVersion(self._files.read(path, exact=True), state.mode)
        except WorkspaceError:  # gone since
            return None

    def _state(self) -> WorkspaceState:
        now: Whereabouts = find(self.record, git=self.git)
        if now.path is None:
            return "missing"
        if now.path != Path(self._recorded.path):
            return "moved"
        return "dirty" if self._is_dirty() else "present"

    def _is_dirty(self) -> bool:
        if self.kind == "private" and not (self.root / ".git").exists():
            return False
        try:
            status = self.git.run(
                "status", "--porcelain", "-z", "--ignore-submodules=dirty", "--", ".", cwd=self.root, converts=True
            )
        except GitError:  # no git here: nothing says what a change would be
            return False
        return status.status == 0 and bool(status.stdout)


async def _kept_version(manifest: Manifest, path: str, *, contents: Contents) -> FileVersion | None:
    if path in manifest.links:
        return FileVersion(manifest.links[path].encode("utf-8", "surrogateescape"), is_link=True)
    state = manifest.files.get(path)
    return None if state is None else FileVersion(await contents.of(state), state.mode)
