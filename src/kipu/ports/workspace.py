"""The seam to a session's files: a directory that nothing escapes, and checkpoints of what is in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

WorkspaceKind: TypeAlias = Literal["private", "worktree", "directory"]
WorkspaceState: TypeAlias = Literal["present", "missing", "moved", "dirty"]
PutBlob: TypeAlias = Callable[[bytes], Awaitable[str]]
GetBlob: TypeAlias = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One entry of a directory. `path` is relative to the root, with `/`; `mtime_ns` tells whether it changed."""

    path: str
    kind: Literal["file", "directory", "link", "other"]
    size: int = 0
    mode: int = 0o644
    mtime_ns: int = 0


class WorkspaceFiles(Protocol):
    """Read and write beneath one root.

    Contract:
    - A path is resolved beneath the root by the kernel (`openat2`, RESOLVE_BENEATH, where there is one): no `..`, no absolute
      path but one beneath the root, no symbolic link out, also when somebody swaps a directory meanwhile (A19, B41).
    - A write is whole or not at all (temporary file, fsync, rename), keeps the file's mode, and makes missing directories.
    - Blocking; call them in a thread.

    Raises: PathOutsideError, PathNotFoundError, and WorkspaceError with what the system said for the rest.
    """

    @property
    def root(self) -> Path:
        """Return the directory that nothing leaves."""
        ...

    def resolve(self, path: str) -> str:
        """Return the path relative to the root, with `/`, "" for the root itself. It need not exist."""
        ...

    def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Return the file's bytes, at most `max_bytes`."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Put `data` in the place of the file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory that is empty."""
        ...

    def stat(self, path: str) -> FileEntry | None:
        """Return what is there, None for nothing; a link is not followed."""
        ...

    def list(self, path: str = "") -> Sequence[FileEntry]:
        """Return the directory's entries by name."""
        ...


class Workspace(Protocol):
    """A session's directory.

    Contract:
    - `snapshot` gives a manifest (JSON) of the files as they are, their contents in blobs by hash; what did not change since
      the last one is not read again. What version control ignores, and files over a stated size, are left out and counted.
    - `restore` brings the files of a manifest back, removes those that came since, leaves out what the manifest leaves out,
      and returns the paths it changed.
    - `diff` says how the files now differ from a manifest, as a unified diff.
    """

    @property
    def kind(self) -> WorkspaceKind:
        """Return what sort of directory it is."""
        ...

    @property
    def root(self) -> Path:
        """Return the directory."""
        ...

    @property
    def files(self) -> WorkspaceFiles:
        """Return the access to it that nothing escapes."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what the session's record says of it (`workspace` of its head)."""
        ...

    async def state(self) -> WorkspaceState:
        """Return whether it is where the session left it."""
        ...

    async def snapshot(self, put_blob: PutBlob) -> dict[str, Any]:
        """Return a manifest of the files as they are."""
        ...

    async def restore(self, manifest: dict[str, Any], get_blob: GetBlob) -> list[str]:
        """Bring the files of the manifest back."""
        ...

    async def diff(self, manifest: dict[str, Any], get_blob: GetBlob) -> str:
        """Return how the files differ from the manifest now."""
        ...

    async def aclose(self) -> None:
        """Free what it holds; the files stay."""
        ...
