"""`BeneathFiles`: read and write below one directory, which nothing leaves."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from kipu.errors import (
    PathDeniedError,
    PathNotFoundError,
    PathTwinError,
    WorkspaceError,
    WorkspaceMissingError,
)
from kipu.ports.clock import Entropy
from kipu.ports.workspace import FileEntry
from kipu.runtime.workspaces.file_replacement import replace_file, replace_link, sync_file_system
from kipu.runtime.workspaces.opener import DIRECTORY, BeneathOpener, best_opener, held
from kipu.runtime.workspaces.path_policy import PathPolicy, PathVerb
from kipu.runtime.workspaces.resolution import PathResolver, Resolved
from kipu.runtime.workspaces.twins import Twin, case_twin
from kipu.stores.host import SystemEntropy

T = TypeVar("T")

TRIES = 50
NEW_DIRECTORY_MODE = 0o777  # less the umask
# What opening says when a part of the path was swapped since it was resolved: resolve it again.
_SWAPPED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EXDEV, errno.ENOENT})
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK_BYTES = 1 << 20
_KINDS = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a directory"))


class BeneathFiles:
    """Read and write beneath one root (A19, B41).

    Links are resolved first, so that the policy judges where a path really leads; then the result is opened in a way that
    follows no link at all. A link that leads somewhere inside works, one that leads out is refused, and a directory swapped
    for a link in between is noticed. Devices, FIFOs and sockets are refused without being opened.

    What it does not see: a hard link inside to a file outside is that file when read (writing replaces the link and leaves
    the other file alone), and a mount below the root is part of the root. Who can make either has reached the outside already.
    """

    def __init__(
        self,
        root: Path,
        *,
        policy: PathPolicy | None = None,
        opener: BeneathOpener | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.policy = policy or PathPolicy()
        self._opener = opener or best_opener()
        self._entropy = entropy or SystemEntropy()
        self._resolver = PathResolver(root, opener=self._opener)

    @property
    def root(self) -> Path:
        """Return the directory that nothing leaves."""
        return self._resolver.root

    # ---- the seam --------------------------------------------------------------------------------------------------

    def resolve(self, path: str) -> str:
        """Return where `path` leads, relative to the root, with `/`, "" for the root itself. It need not exist."""
        return self._at(path, lambda _root, found: found.path)

    def read(self, path: str, *, max_bytes: int | None = None, exact: bool = False) -> bytes:
        """Return the file's bytes, at most `max_bytes`; with `exact` a path that leads through a link is refused.

        Raises: PathOutsideError, PathNotFoundError, PathDeniedError, WorkspaceError.
        """

        def operation(root: int, found: Resolved) -> bytes:
            self._file_at(found, path)
            with held(self._opener.open(root, found.parts, flags=_READ)) as file:
                self._file(os.fstat(file), path)
                return _read_all(file, max_bytes)

        return self._at(path, operation, verb="read", exact=exact)

    def write(
        self, path: str, data: bytes, *, mode: int | None = None, exact: bool = False, durable: bool = True
    ) -> None:
        """Put `data` in the place of the file, whole or not at all; a link's target is replaced, not the link.

        The file keeps its mode, or gets `mode`; a new one gets 0644 less the umask. With `exact` a path that leads through a
        link is refused. Without `durable` it is on the disk once `sync` was called.
        Raises: PathOutsideError, PathDeniedError, PathTwinError, WorkspaceError.
        """

        def operation(root: int, found: Resolved) -> None:
            if found.status is not None:
                self._file(found.status, path)
            self._name_at(found, path)
            self._refuse(found.twin, path)
            with held(self._directory(root, found.parts[:-1])) as directory:
                self._refuse(_case_twin_of(found, directory), path)
                name, temporary = found.parts[-1], self._temporary()
                replace_file(directory, name, data=data, mode=mode, temporary=temporary, durable=durable)

        self._at(path, operation, verb="written", exact=exact)

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory that is empty. Raises: PathNotFoundError, PathDeniedError, WorkspaceError."""

        def operation(root: int, found: Resolved) -> None:
            self._name_at(found, path)
            if found.status is None:
                raise PathNotFoundError(root=str(self.root), path=path)
            with held(self._opener.open(root, found.parts[:-1], flags=DIRECTORY)) as directory:
                if stat.S_ISDIR(found.status.st_mode):
                    os.rmdir(found.parts[-1], dir_fd=directory)
                else:
                    os.unlink(found.parts[-1], dir_fd=directory)

        self._at(path, operation, verb="written", follow=False)

    def stat(self, path: str) -> FileEntry | None:
        """Return what is there, None for nothing; a link is not followed."""
        return self._at(
            path, lambda root, found: _entry(found.path, found.status or _nothing_or_root(root, found)), follow=False
        )

    def list(self, path: str = "") -> Sequence[FileEntry]:
        """Return the directory's entries by name. Raises: PathNotFoundError, PathDeniedError, WorkspaceError."""

        def operation(root: int, found: Resolved) -> Sequence[FileEntry]:
            if found.parts and found.status is None:
                raise PathNotFoundError(root=str(self.root), path=path)
            if found.status is not None and not stat.S_ISDIR(found.status.st_mode):
                raise WorkspaceError(root=str(self.root), reason=f"{path!r} is not a directory")
            with held(self._opener.open(root, found.parts, flags=DIRECTORY)) as directory:
                return _entries(directory, above=found.path)

        return self._at(path, operation, verb="read")

    def make_directory(self, path: str) -> None:
        """Make a directory, those above it included; one that is there stays. Raises: PathDeniedError, WorkspaceError."""

        def operation(root: int, found: Resolved) -> None:
            with held(self._directory(root, found.parts)):
                pass

        self._at(path, operation, verb="written", exact=True)

    def sync(self) -> None:
        """Bring everything written so far to the disk."""
        with held(self._open_root()) as root:
            sync_file_system(root)

    # ---- links, for checkpoints ------------------------------------------------------------------------------------

    def read_link(self, path: str) -> str:
        """Return what the link says; it is not followed. Raises: PathNotFoundError, WorkspaceError."""

        def operation(root: int, found: Resolved) -> str:
            if found.status is None or not stat.S_ISLNK(found.status.st_mode):
                raise PathNotFoundError(root=str(self.root), path=path)
            with held(self._opener.open(root, found.parts[:-1], flags=DIRECTORY)) as directory:
                return os.readlink(found.parts[-1], dir_fd=directory)

        return self._at(path, operation, verb="read", follow=False)

    def write_link(self, path: str, target: str) -> None:
        """Put a link that says `target` at the path; what it leads to is for whoever follows it to judge."""

        def operation(root: int, found: Resolved) -> None:
            self._name_at(found, path)
            self._refuse(found.twin, path)
            with held(self._directory(root, found.parts[:-1])) as directory:
                replace_link(directory, found.parts[-1], target=target, temporary=self._temporary())

        self._at(path, operation, verb="written", follow=False, exact=True)

    # ---- how -------------------------------------------------------------------------------------------------------

    def _at(
        self,
        path: str,
        operation: Callable[[int, Resolved], T],
        *,
        verb: PathVerb | None = None,
        follow: bool = True,
        exact: bool = False,
    ) -> T:
        """Resolve and do it; begin again when a part of the path was swapped in between."""
        with held(self._open_root()) as root:
            for _ in range(TRIES):
                try:
                    found = self._resolver.resolve(root, path, follow=follow)
                    if verb is not None:
                        self._allow(found, path, verb=verb)
                    if exact and found.path != path:
                        raise WorkspaceError(root=str(self.root), reason=f"{path!r} leads through a link")
                    return operation(root, found)
                except OSError as error:
                    if error.errno not in _SWAPPED:
                        raise self._told(error, path) from error
        raise WorkspaceError(root=str(self.root), reason=f"{path!r} changes while it is being opened")

    def _open_root(self) -> int:
        try:
            return os.open(self.root, DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _SWAPPED:
                raise WorkspaceMissingError(root=str(self.root)) from error
            raise self._told(error, "") from error

    def _allow(self, found: Resolved, path: str, *, verb: PathVerb) -> None:
        reason = self.policy.refusal(found.path, verb=verb)
        if reason is not None:
            raise PathDeniedError(root=str(self.root), path=path, verb=verb, reason=reason)

    def _file_at(self, found: Resolved, path: str) -> None:
        if found.status is None and found.parts:
            raise PathNotFoundError(root=str(self.root), path=path)
        if found.status is None:
            raise WorkspaceError(root=str(self.root), reason=f"{path!r} is a directory")
        self._file(found.status, path)

    def _file(self, status: os.stat_result, path: str) -> None:
        if stat.S_ISREG(status.st_mode):
            return
        kind = next((name for test, name in _KINDS if test(status.st_mode)), "a device")
        raise WorkspaceError(root=str(self.root), reason=f"{path!r} is {kind}, not a file")

    def _name_at(self, found: Resolved, path: str) -> None:
        if not found.parts:
            raise WorkspaceError(root=str(self.root), reason=f"{path!r} is its root, not a file in it")

    def _directory(self, root: int, parts: Sequence[str]) -> int:
        """Open a directory, made first where it is missing."""
        try:
            return self._opener.open(root, parts, flags=DIRECTORY)
        except FileNotFoundError:
            with held(self._directory(root, parts[:-1])) as above:
                try:
                    os.mkdir(parts[-1], NEW_DIRECTORY_MODE, dir_fd=above)
                    os.fsync(above)
                except FileExistsError:
                    pass
                return os.open(parts[-1], DIRECTORY | os.O_NOFOLLOW, dir_fd=above)

    def _refuse(self, twin: Twin | None, path: str) -> None:
        if twin is not None:
            raise PathTwinError(root=str(self.root), path=path, twin=twin.path, difference=twin.difference)

    def _temporary(self) -> str:
        return f".kipu-{self._entropy.random_bytes(8).hex()}.tmp"

    def _told(self, error: OSError, path: str) -> WorkspaceError:
        return WorkspaceError(root=str(self.root), reason=f"{path!r}: {error.strerror or error}")


def is_temporary(name: str) -> bool:
    """Return True for the name of a write that a crash cut short."""
    return name.startswith(".kipu-") and name.endswith(".tmp")


def _case_twin_of(found: Resolved, directory: int) -> Twin | None:
    other = case_twin(found.parts[-1], directory) if found.status is not None else None
    if other is None:
        return None
    return Twin("/".join([*found.parts[:-1], other]), "only in case, which this volume does not tell apart")


def _nothing_or_root(root: int, found: Resolved) -> os.stat_result | None:
    return None if found.parts else os.fstat(root)


def _read_all(file: int, max_bytes: int | None) -> bytes:
    pieces: list[bytes] = []
    left = max_bytes
    while left is None or left > 0:
        piece = os.read(file, _CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
        if not piece:
            break
        pieces.append(piece)
        left = None if left is None else left - len(piece)
    return b"".join(pieces)


def _entries(directory: int, *, above: str) -> list[FileEntry]:
    entries: list[FileEntry] = []
    for name in sorted(os.listdir(directory)):
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:  # removed while this listed
            continue
        entry = _entry(f"{above}/{name}" if above else name, status)
        if entry is not None:
            entries.append(entry)
    return entries


def _entry(path: str, status: os.stat_result | None) -> FileEntry | None:
    if status is None:
        return None
    return FileEntry(
        path=path,
        kind=_kind(status.st_mode),
        size=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
    )


def _kind(mode: int) -> Literal["file", "directory", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"
