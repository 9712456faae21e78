"""`WorkspaceRecord`: what a session's head says of its directory, enough to know the directory again elsewhere."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from kipu.errors import WorkspaceError
from kipu.ports.head import Head
from kipu.ports.workspace import WorkspaceKind
from kipu.runtime.workspaces.place import Place

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_STATX_BTIME_AT = 0x50
_TEXTS = ("repository", "git_dir", "branch", "base", "bound", "saved", "seen")


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """A directory whatever its name: device, inode, and when it was made, since inodes are used again."""

    device: int
    inode: int
    born_ns: int = 0  # 0 where the file system does not say

    @classmethod
    def of(cls, path: Path) -> DirectoryIdentity | None:
        """Return the identity of the directory at `path`, None when there is none."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        if not path.is_dir():
            return None
        return cls(status.st_dev, status.st_ino, _born_ns(path, status))

    def matches(self, other: DirectoryIdentity | None) -> bool:
        """Return True when both are one directory; device numbers may change at a restart where the time of birth is known."""
        if other is None or self.inode != other.inode:
            return False
        if self.born_ns and other.born_ns:
            return self.born_ns == other.born_ns
        return self.device == other.device


@dataclass(frozen=True, slots=True)
class WorkspaceRecord:
    """What is kept of a workspace in the `workspace` field of its session's head.

    `path` is where it was last. A worktree has `repository` (its main working tree), `git_dir` (the repository's common git
    directory), `branch`, and `base` (the commit it was made from). `session_id` is the session it was made for: a fork
    inherits the record, and sees by it that the directory is its parent's.

    `place` is what its files are bound to, with `bound` saying why where that is no matter of course. Where they are kept in the
    store instead, `saved` names the newest manifest of all of them, `seen` what of them was read, and `at` the machine whose copy is
    the living one.
    """

    kind: WorkspaceKind
    path: str
    session_id: str
    identity: DirectoryIdentity | None = None
    repository: str | None = None
    git_dir: str | None = None
    branch: str | None = None
    base: str | None = None
    place: Place | None = None
    bound: str | None = None
    at: Place | None = None
    saved: str | None = None
    seen: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as the head keeps it."""
        data: dict[str, Any] = {"kind": self.kind, "path": self.path, "session_id": self.session_id}
        if self.identity is not None:
            data["identity"] = [self.identity.device, self.identity.inode, self.identity.born_ns]
        named: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        named |= {name: list(place) for name in ("place", "at") if (place := getattr(self, name)) is not None}
        return data | {name: value for name, value in named.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkspaceRecord:
        """Return the record of a head; names that a newer version added are left aside. Raises: WorkspaceError."""
        kind, path = data.get("kind", "directory"), data.get("path")
        if kind not in get_args(WorkspaceKind) or not isinstance(path, str) or not path.startswith("/"):
            raise WorkspaceError(root=str(path), reason="its record is not one that this version reads")
        identity = data.get("identity")
        known = isinstance(identity, list) and len(identity) == 3 and all(isinstance(part, int) for part in identity)
        texts = {name: data.get(name) for name in _TEXTS}
        return cls(
            kind=cast(WorkspaceKind, kind),
            path=path,
            session_id=str(data.get("session_id", "")),
            identity=DirectoryIdentity(*cast("list[int]", identity)) if known else None,
            place=Place.from_json(data.get("place")),
            at=Place.from_json(data.get("at")),
            **{name: value if isinstance(value, str) else None for name, value in texts.items()},
        )


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """Another session that works in the same directory, or in one inside or around it."""

    session_id: str
    title: str
    path: str
    relation: Literal["same", "inside", "around"]


def sharing(record: WorkspaceRecord, heads: Iterable[Head], *, session_id: str) -> list[SharedDirectory]:
    """Return the other sessions among `heads` that can see the files of `record`, so that it can be said (B41). Pure."""
    shared: list[SharedDirectory] = []
    for head in heads:
        if head.session_id == session_id or not head.workspace:
            continue
        try:
            other = WorkspaceRecord.from_json(head.workspace)
        except WorkspaceError:
            continue
        relation = _relation(record, other)
        if relation is not None:
            shared.append(SharedDirectory(head.session_id, head.display_title, other.path, relation))
    return shared


def _relation(record: WorkspaceRecord, other: WorkspaceRecord) -> Literal["same", "inside", "around"] | None:
    if record.path == other.path or (record.identity is not None and record.identity.matches(other.identity)):
        return "same"
    if Path(other.path).is_relative_to(record.path):
        return "inside"
    return "around" if Path(record.path).is_relative_to(other.path) else None


def _born_ns(path: Path, status: os.stat_result) -> int:
    """Return when the directory was made: from the status where Python has it there, else from the C library."""
    born = getattr(status, "st_birthtime_ns", None)
    if born is not None:
        return int(born)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return 0
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", answer, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _STATX_BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds) if mask & _STATX_BTIME else 0
