"""A file that is there whole or not at all (A51)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path


async def write_whole(path: Path, chunks: AsyncIterator[bytes]) -> int:
    """Write `chunks` to `path` and return the bytes written; until all are durable, `path` is as it was (A51, A52).

    The file is readable for its owner only: a session may hold anything. Where `path` is a link, what it leads to is written;
    a device or a pipe takes the bytes as they come.
    """
    pending = PendingFile(path, follow=True)
    try:
        async for chunk in chunks:
            pending.write(chunk)
        return pending.finish()
    finally:
        pending.drop()


class PendingFile:
    """A file under another name beside `path`, until it is finished; only `follow` writes where a link of that name leads.

    What is no file is never replaced by one: a device or a pipe is written into.
    """

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        self._is_stream = path.exists() and not path.is_file() and not path.is_dir()
        if self._is_stream:
            self._name: Path | None = path
            self._file = path.open("wb")
            self.size = 0
            return
        path = Path(os.path.realpath(path)) if follow else path
        self._path = path
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
        self._name = Path(name)
        self._file = os.fdopen(descriptor, "wb")
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._file.write(data)
        self.size += len(data)

    def finish(self) -> int:
        """Make the file durable under its name and return its size."""
        if self._name is None:
            return self.size
        self._file.flush()
        if self._is_stream:
            self._file.close()
            self._name = None
            return self.size
        os.fsync(self._file.fileno())
        self._file.close()
        self._name.replace(self._path)
        self._name = None
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self.size

    def drop(self) -> None:
        """Remove what was not finished."""
        if self._name is not None:
            self._file.close()
            if not self._is_stream:
                self._name.unlink(missing_ok=True)
            self._name = None
