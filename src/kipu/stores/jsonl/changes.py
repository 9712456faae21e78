"""`changes`: the ids of sessions that grew, one a line, so that followers of everything know where to look. A mere hint."""

from __future__ import annotations

import os

from kipu.stores.jsonl.medium import PRIVATE_FILE

FILE = "changes"
# Begun anew above this size; a follower that was behind compares every session.
_MAX_BYTES = 1 << 18


class ChangeNotes:
    """Write notes for the followers of other processes, and read theirs."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, FILE)
        self._fd = -1

    def write(self, session_ids: list[str]) -> None:
        """Note that sessions grew. The caller holds the index's lock."""
        if self._fd >= 0:
            now = os.fstat(self._fd)
            if now.st_nlink == 0:
                self.close()
            elif now.st_size > _MAX_BYTES:
                os.ftruncate(self._fd, 0)
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        os.write(self._fd, "".join([f"{session_id}\n" for session_id in session_ids]).encode())

    def place(self) -> tuple[int, int]:
        """Return inode and size: where the notes end now."""
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return (0, 0)
        return (now.st_ino, now.st_size)

    def read(self, place: tuple[int, int]) -> tuple[tuple[int, int], list[str] | None]:
        """Return where the notes end and the ids noted since `place`, or None when that cannot be known."""
        now = self.place()
        if now == place:
            return now, []
        if now[0] != place[0] or now[1] < place[1]:
            return now, None
        with open(self._path, "rb") as file:
            file.seek(place[1])
            data = file.read(now[1] - place[1])
        end = data.rfind(b"\n") + 1
        ids = data[:end].decode(errors="replace").split("\n")[:-1]
        return (now[0], place[1] + end), list(dict.fromkeys(ids))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
