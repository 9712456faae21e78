"""What the SQLite tests share: opening a store, beginning a session, and a file layer that counts and fails on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw

from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, Record
from kipu.stores.sqlite import SqliteStore
from kipu.testing.fakes import FakeClock, FakeLiveness

TIME = "2027-01-15T08:00:00.000000Z"


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[SqliteStore]:
    """Give a store at `folder`/store.db, closed afterwards."""
    settings = {"clock": FakeClock(), "liveness": FakeLiveness(), **settings}
    store = await SqliteStore.open(folder / "store.db", **settings)
    try:
        yield store
    finally:
        await store.close()


def record(text: str = "hello", *, event_type: str = "user_message", **fields: Any) -> Record:
    """Return a record whose body holds `text`."""
    return Record("0190-event", event_type, TIME, b'{"content":"%s"}' % text.encode(), **fields)


async def begin(store: SqliteStore, session_id: str = "one", **fields: Any) -> Appended:
    """Make a session."""
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, **fields})
    return await store.append(session_id, [record(event_type="session_init")], head=patch)


class Faults(apsw.VFS):
    """A file layer that counts writes and syncs, and fails the calls it is told to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.syncs: list[str] = []
        self.fail: dict[str, type[apsw.Error]] = {}  # by method, until taken back
        self.once: tuple[int, type[apsw.Error]] | None = None  # the n-th call from now on, whichever it is
        super().__init__(name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        """Open through the operating system, counting."""
        return _File(self, name, flags)

    def meet(self, method: str) -> None:
        """Raise what was ordered for this method."""
        if method in self.fail:
            raise self.fail[method](f"ordered: {method}")
        if self.once is not None:
            left, kind = self.once
            self.once = (left - 1, kind) if left > 1 else None
            if left == 1:
                raise kind(f"ordered: {method}")


class _File(apsw.VFSFile):
    def __init__(self, vfs: Faults, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        self._name = str(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._vfs.meet("write")
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._vfs.meet("truncate")
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.meet("sync")
        self._vfs.syncs.append(self._name.rpartition("-")[2] if self._name.endswith("-wal") else "db")
        super().xSync(flags)


@contextmanager
def faults(name: str) -> Iterator[Faults]:
    """Give a file layer under `name`, gone afterwards."""
    vfs = Faults(name)
    try:
        yield vfs
    finally:
        vfs.unregister()
