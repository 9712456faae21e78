"""What a session has seen of its files, so that nothing is changed that it does not know."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kipu.ports.workspace import FileEntry

MOST_TOLD = 2000
Knowledge: TypeAlias = Literal["known", "unread", "changed"]


@dataclass(frozen=True, slots=True)
class Sight:
    """A file as it was seen: by its time and size, and by its content where that was at hand whole."""

    mtime_ns: int
    size: int
    digest: bytes | None


@dataclass(slots=True)
class SeenFiles:
    """Remember, per path, the state that the session has read or written itself. One for all file tools of a session.

    `lock` orders the changes of one session: two parallel edits of one file both stand.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _sights: dict[str, Sight] = field(default_factory=dict)

    def note(self, path: str, entry: FileEntry, *, data: bytes | None) -> None:
        """Remember the file of `entry`, taken before `data` was read, or after it was written."""
        digest = None if data is None else hashlib.sha256(data).digest()
        self._sights.pop(path, None)  # the newest last
        self._sights[path] = Sight(entry.mtime_ns, entry.size, digest)

    def digests(self) -> dict[str, str]:
        """Return by what content each file is known, those seen last: what another process needs to know them too."""
        newest = list(self._sights.items())[-MOST_TOLD:]
        return {path: sight.digest.hex() for path, sight in newest if sight.digest is not None}

    def recall(self, digests: Mapping[str, str]) -> None:
        """Take files for seen that another process of the session saw with these contents."""
        for path, digest in digests.items():
            self._sights.setdefault(path, Sight(0, -1, bytes.fromhex(digest)))

    def forget(self, path: str) -> None:
        """Forget what was seen at `path`."""
        self._sights.pop(path, None)

    def knowledge(self, path: str, entry: FileEntry, *, data: bytes | None) -> Knowledge:
        """Say whether the session knows the file as it is now. A file that was only touched is known by its content."""
        sight = self._sights.get(path)
        if sight is None:
            return "unread"
        if sight.digest is not None and data is not None:
            return "known" if hashlib.sha256(data).digest() == sight.digest else "changed"
        same = entry.kind == "file" and (entry.mtime_ns, entry.size) == (sight.mtime_ns, sight.size)
        return "known" if same else "changed"
