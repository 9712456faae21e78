"""A SQLite virtual file system whose n-th write, sync, cut or file fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import apsw


@dataclass
class DiskFaults:
    """Counts calls that change files, and breaks the ones it was told to (see `CallFaults` for the fields)."""

    nth: int = 0
    full: bool = False
    lasting: bool = False
    seen: int = 0
    broken: list[str] = field(default_factory=list)

    def check(self, name: str) -> None:
        """Count a call; raise if it is to fail."""
        self.seen += 1
        chosen = self.nth > 0 and (self.seen >= self.nth if self.lasting else self.seen == self.nth)
        if not chosen:
            return
        self.broken.append(name)
        if self.full and name == "xWrite":
            raise apsw.FullError("injected: the disk is full")
        raise apsw.IOError("injected: the disk failed")


class _FailingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], *, base: str, faults: DiskFaults) -> None:
        super().__init__(base, name, flags)
        self._faults = faults

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._faults.check("xWrite")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._faults.check("xSync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._faults.check("xTruncate")
        super().xTruncate(newsize)


class FailingVfs(apsw.VFS):
    """The system's own file system with faults; open databases with `vfs=` its name."""

    def __init__(self, name: str, faults: DiskFaults, *, base: str = "unix") -> None:
        self.name = name
        self.faults = faults
        self._base_name = base
        super().__init__(name, base)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """Open a file whose calls are counted."""
        return _FailingFile(name, flags, base=self._base_name, faults=self.faults)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file, or fail."""
        self.faults.check("xDelete")
        super().xDelete(filename, syncdir)


@contextmanager
def failing_vfs(name: str, faults: DiskFaults) -> Iterator[FailingVfs]:
    """Register a failing file system for as long as the block runs."""
    vfs = FailingVfs(name, faults)
    try:
        yield vfs
    finally:
        vfs.unregister()
