"""Acknowledged bytes of a buffering store that the medium does not have yet."""

from __future__ import annotations

import os
from typing import NamedTuple


class Unsynced(NamedTuple):
    """Where such bytes stand: in one segment, one behind the other."""

    path: str
    inode: int
    start: int
    end: int

    def write_again(self) -> None:
        """Write them once more in their place, and sync them. The caller holds the session's lock.

        After a sync that failed the system may take their pages for clean: a later sync would pass them over, and say that all
        is well. Where the file is another one now, whoever made it has put it on the medium. Raises: OSError.
        """
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            now = os.fstat(fd)
            if now.st_ino != self.inode or now.st_size < self.end:
                return
            data = memoryview(os.pread(fd, self.end - self.start, self.start))
            written = 0
            while written < len(data):
                written += os.pwrite(fd, data[written:], self.start + written)
            os.fdatasync(fd)
        finally:
            os.close(fd)
