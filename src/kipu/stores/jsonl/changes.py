"""`changes`: the ids of sessions that grew, one a line, so that followers of everything know where to look. A mere hint."""

from __future__ import annotations

import os
from typing import NamedTuple

from kipu.stores.jsonl.medium import open_plain

FILE = "changes"
# Begun anew above this size; a follower that was behind compares every session.
_MAX_BYTES = 1 << 18
_NAME_BYTES = 32


class NotesPlace(NamedTuple):
    """Where the notes ended: of which file, named by its first line."""

    name: bytes = b""
    size: int = 0
    mtime_ns: int = 0


class ChangeNotes:
    """Write notes for the followers of other processes, and read theirs.

    The first line names the file anew whenever it begins anew: inodes and sizes come again, and a follower that trusted them
    would miss what was noted in between.
    """

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, FILE)
        self._fd = -1

    def write(self, session_ids: list[str]) -> None:
        """Note that sessions grew. The caller holds the index's lock."""
        size = 0
        if self._fd >= 0:
            now = os.fstat(self._fd)
            size = now.st_size
            if now.st_nlink == 0:
                self.close()
            elif size > _MAX_BYTES:
                os.ftruncate(self._fd, 0)
                size = 0
        if self._fd < 0:
            self._fd = open_plain(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            size = os.fstat(self._fd).st_size
        text = "".join([f"{session_id}\n" for session_id in session_ids])
        if size == 0:
            text = f"#{os.urandom(8).hex()}\n{text}"
        os.write(self._fd, text.encode())

    def stamp(self) -> tuple[int, int, int]:
        """Return something that changes whenever a note is written."""
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return (0, 0, 0)
        return (now.st_ino, now.st_size, now.st_mtime_ns)

    def read(self, place: NotesPlace | None) -> tuple[NotesPlace, list[str] | None]:
        """Return where the notes end and the ids noted since `place`, or None when that cannot be known."""
        try:
            with open(self._path, "rb", opener=open_plain) as file:
                now = os.fstat(file.fileno())
                if place is not None and (place.size, place.mtime_ns) == (now.st_size, now.st_mtime_ns):
                    return place, []
                name = file.readline(_NAME_BYTES)
                known = place is not None and name == place.name and place.size <= now.st_size
                file.seek(place.size if place is not None and known else now.st_size)
                data = file.read()
                end = file.tell() - len(data) + data.rfind(b"\n") + 1
        except FileNotFoundError:
            empty = NotesPlace()
            return empty, [] if place == empty else None
        after = NotesPlace(name, end, now.st_mtime_ns if end == now.st_size else 0)
        ids = data.decode(errors="replace").split("\n")[:-1]
        return after, list(dict.fromkeys(ids)) if known else None

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
