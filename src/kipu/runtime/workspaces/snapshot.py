"""`SnapshotTaker`: what the files of a workspace are now, reading only those that changed."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kipu.errors import WorkspaceError, WorkspaceMissingError
from kipu.ports.clock import Clock
from kipu.ports.workspace import PutBlob
from kipu.runtime.workspaces.beneath import BeneathFiles
from kipu.runtime.workspaces.git import GitProgram
from kipu.runtime.workspaces.listing import TreeListing, list_everything, list_tree
from kipu.runtime.workspaces.manifest import FileState, Manifest, Place, digest_of
from kipu.runtime.workspaces.opener import DIRECTORY, held

# A change within the same tick of the file system's clock as the last look could not be seen by times.
_SETTLED_NS = 50_000_000
_PERMISSIONS = 0o777
_BATCH_FILES = 512
_BATCH_BYTES = 1 << 20
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """What a snapshot takes: larger files are left out, and so is what comes after so many files or bytes in all."""

    max_file_bytes: int = 5_000_000
    max_files: int = 50_000
    max_total_bytes: int = 1_000_000_000


class Signature(NamedTuple):
    """What tells by a look alone that a file is as it was."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


@dataclass(slots=True)
class KeptContents:
    """What is known of the files of one workspace: contents by what tells a file unchanged, and where each content is kept."""

    known: dict[str, tuple[Signature, str]] = field(default_factory=dict)
    stored: dict[str, Place | None] = field(default_factory=dict)
    packs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Look:
    """The tree as one pass over it found it: nothing was read yet."""

    files: dict[str, Signature] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    folders: tuple[str, ...] = ()
    is_cut: bool = False
    began_ns: int = 0


class SnapshotTaker:
    """Take manifests of one workspace. What it has read it knows again by size, times and inode.

    With `whole`, everything is taken that another machine needs to go on: what version control ignores and its own files too.
    Takers of one workspace share `kept`, so that nothing is kept twice.

    Links are kept as links and never followed. Left out are what version control ignores (elsewhere: heavy folders), files
    over the limits, what is no file, what cannot be read, and what the policy for paths excludes.
    """

    def __init__(
        self,
        files: BeneathFiles,
        *,
        git: GitProgram,
        clock: Clock,
        limits: SnapshotLimits | None = None,
        own_repository: bool = False,
        whole: bool = False,
        kept: KeptContents | None = None,
    ) -> None:
        self.files = files
        self.limits = limits or SnapshotLimits()
        self._git = git
        self._clock = clock
        self._own_repository = own_repository
        self._whole = whole
        self.kept = kept or KeptContents()
        self._closed: dict[str, bool] = {}
        self._lock = asyncio.Lock()

    async def take(self, put_blob: PutBlob | None = None, *, judge: Callable[[Look], None] | None = None) -> Manifest:
        """Return the manifest of the files now; with `put_blob` every content is kept before this returns.

        `judge` may refuse by an error what was looked at, before any of it is read.
        Raises: WorkspaceMissingError, GitError, and what `put_blob` and `judge` raise.
        """
        async with self._lock:
            look = await asyncio.to_thread(self._look)
            if judge is not None:
                judge(look)
            states = self._unchanged(look, is_kept=put_blob is not None)
            changed = [path for path in look.files if path not in states]
            for batch in _batches(changed, look=look):
                states.update(await self._read(batch, look=look, put_blob=put_blob))
            self._forget(look)
            counts = look.counts + Counter(look.left_out.values())
            places = {state.digest: place for state in states.values() if (place := self.kept.stored.get(state.digest))}
            packs = tuple(self.kept.packs)
            return Manifest(states, look.links, look.left_out, counts, look.is_cut, packs, places, look.folders)

    def know(self, manifest: Manifest) -> None:
        """Take the contents of a manifest for kept: that of an earlier run in the same session."""
        if self.kept.packs:
            return
        self.kept.packs += manifest.packs
        self.kept.stored.update({state.digest: manifest.places.get(state.digest) for state in manifest.files.values()})

    def _forget(self, look: Look) -> None:
        """Forget the files that are gone, now and then: takers that look at other parts of the tree share what is known."""
        known = self.kept.known
        if len(known) > 2 * len(look.files) + _REMEMBERED:
            for path in known.keys() - look.files.keys():
                del known[path]

    def _unchanged(self, look: Look, *, is_kept: bool) -> dict[str, FileState]:
        states: dict[str, FileState] = {}
        for path, signature in look.files.items():
            known = self.kept.known.get(path)
            if known is not None and known[0] == signature and (not is_kept or known[1] in self.kept.stored):
                states[path] = FileState(known[1], signature.mode, signature.size)
        return states

    async def _read(self, batch: Sequence[str], *, look: Look, put_blob: PutBlob | None) -> dict[str, FileState]:
        contents = await asyncio.to_thread(self._contents, batch, look=look)
        if put_blob is not None:
            await self._keep(dict(contents.values()), put_blob)
        states: dict[str, FileState] = {}
        for path, (digest, data) in contents.items():
            signature = look.files[path]
            states[path] = FileState(digest, signature.mode, len(data))
            if signature.ctime_ns < look.began_ns - _SETTLED_NS:
                self.kept.known[path] = (signature, digest)
            else:
                self.kept.known.pop(path, None)
        return states

    async def _keep(self, contents: Mapping[str, bytes], put_blob: PutBlob) -> None:
        """Keep what is not kept yet: one alone as it is, several together."""
        kept = self.kept
        fresh = {digest: data for digest, data in contents.items() if digest not in kept.stored}
        if not fresh:
            return
        pack = await put_blob(b"".join(fresh.values()))
        if len(fresh) == 1:
            kept.stored[pack] = None
            return
        kept.packs.append(pack)
        offset = 0
        for digest, data in fresh.items():
            kept.stored[digest] = Place(len(kept.packs) - 1, offset)
            offset += len(data)

    def _contents(self, batch: Iterable[str], *, look: Look) -> dict[str, tuple[str, bytes]]:
        contents: dict[str, tuple[str, bytes]] = {}
        for path in batch:
            try:
                data = self.files.read(path, max_bytes=self.limits.max_file_bytes + 1, exact=True)
            except WorkspaceMissingError:
                raise
            except WorkspaceError:  # gone or closed since the look, or not ours to read
                look.left_out[path] = "unreadable"
                continue
            if len(data) > self.limits.max_file_bytes:
                look.left_out[path] = "large"
                continue
            contents[path] = (digest_of(data), data)
        return contents

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _look(self) -> Look:
        look = Look(began_ns=self._clock.now_us() * 1000)
        root = self.files.root
        listing = self._listing(root)
        look.counts.update(listing.left_out)
        look.left_out.update(dict.fromkeys(listing.heavy, "heavy"))
        look.folders = tuple(listing.empty)
        look.is_cut = listing.is_cut
        total = 0
        try:
            descriptor = os.open(root, DIRECTORY)
        except FileNotFoundError as error:
            raise WorkspaceMissingError(root=str(root)) from error
        with held(descriptor):
            for path in sorted(listing.paths):
                status = listing.paths[path] or _status(path, root=descriptor)
                if status is not None:
                    total += self._look_at(path, look, status=status, root=descriptor, total=total)
        return look

    def _listing(self, root: Path) -> TreeListing:
        most = self.limits.max_files
        if self._whole:
            return list_everything(root, git=self._git, most=most)
        return list_tree(root, git=self._git, most=most, own_repository=self._own_repository)

    def _look_at(self, path: str, look: Look, *, status: os.stat_result, root: int, total: int) -> int:
        """Put the path where it belongs and return the bytes it adds."""
        reason = self._reason(path, status, total=total)
        if reason is not None:
            look.left_out[path] = reason
        elif stat.S_ISLNK(status.st_mode):
            target = _target(path, root=root)
            if target:
                look.links[path] = target
        else:
            look.files[path] = Signature(
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
                stat.S_IMODE(status.st_mode) & _PERMISSIONS,
            )
            return status.st_size
        return 0

    def _reason(self, path: str, status: os.stat_result, *, total: int) -> str | None:
        """Return why the path is left out, None when it is not."""
        is_link = stat.S_ISLNK(status.st_mode)
        if not is_link and not stat.S_ISREG(status.st_mode):
            return "special"
        closed = self._closed.get(path)
        if closed is None:
            closed = self.files.policy.refusal(path, verb="written") is not None
            self._closed[path] = closed
        if closed:
            return "closed"
        if is_link:
            return None
        too_large = status.st_size > self.limits.max_file_bytes
        return "large" if too_large or total + status.st_size > self.limits.max_total_bytes else None


def _status(path: str, *, root: int) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:  # gone since it was listed
        return None


def _target(path: str, *, root: int) -> str:
    try:
        return os.readlink(path, dir_fd=root)
    except OSError:
        return ""


def _batches(paths: Iterable[str], *, look: Look) -> Iterable[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and (len(batch) >= _BATCH_FILES or size + look.files[path].size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += look.files[path].size
    if batch:
        yield batch
