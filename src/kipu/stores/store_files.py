"""The files of one store while nobody uses it: whether that is so, moved and destroyed together, and what no copy of sessions carries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apsw
import orjson

from kipu.stores.conversion_mark import sync_folder
from kipu.stores.file_system import file_system_kind
from kipu.stores.jsonl.layout import local_index_folder
from kipu.stores.jsonl.lease import LeaseFile, LeaseState
from kipu.stores.jsonl.marking import TOMBSTONES
from kipu.stores.jsonl.medium import make_folder, replace_file
from kipu.stores.tables.heads import Heads

_BLOCK = bytes(1 << 20)
_SIDES = ("", "-wal", "-shm", "-journal")
_LOOK_MS = 500  # somebody who only looks in is gone by then


class StoreFiles:
    """A SQLite or JSONL store as files. None of this is for a store that is open, but `in_use`."""

    def __init__(self, kind: str, path: Path, *, index: str = "") -> None:
        self.kind = kind
        self.path = path
        self._index_setting = index

    def exists(self) -> bool:
        """Return whether the store is there."""
        return self.path.exists()

    def in_use(self) -> bool:
        """Return whether any process, this one included, has the store open."""
        database = self.path if self.kind == "sqlite" else self._index()
        if not database.exists():
            return False
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # Whoever has it open holds a shared lock on the file, which this mode does not suffer beside it.
            connection.set_busy_timeout(_LOOK_MS)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except apsw.BusyError:
            return True
        except (apsw.NotADBError, apsw.CorruptError):
            return False  # what is wrong with it is told by whoever reads it
        finally:
            connection.close()
        return False

    def move_to(self, path: Path) -> None:
        """Give the store another name, durably; the part that a kill left over is moved when this is called again."""
        sides = _SIDES if self.kind == "sqlite" else ("",)
        for side in reversed(sides):  # the log before its database: the other way round it would be another's
            here = Path(f"{self.path}{side}")
            if here.exists():
                os.replace(here, f"{path}{side}")
        if self.kind == "jsonl":
            self._move_index(StoreFiles(self.kind, path, index=self._index_setting))
        sync_folder(path.parent)

    def _move_index(self, moved: StoreFiles) -> None:
        """Let an index that is elsewhere go with its store: it is named by the store's place, and holds its terms."""
        here, there = self._index().parent, moved._index().parent
        if here not in {self.path, there} and here.exists():
            shutil.rmtree(there, ignore_errors=True)
            os.replace(here, there)

    def settle(self) -> None:
        """Put every byte of the store on the medium."""
        for path in self._files():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        for folder in {path.parent for path in self._files()}:
            sync_folder(folder)
        sync_folder(self.path.parent)

    def destroy(self) -> None:
        """Overwrite every file of the store, then remove it. A kill in between leaves less to do, and nothing to read."""
        for path in self._files():
            overwrite(path)
            path.unlink()
        if self.kind == "jsonl":
            shutil.rmtree(self.path, ignore_errors=True)
            self._forget_local_index()
        sync_folder(self.path.parent)

    def _files(self) -> Iterator[Path]:
        if self.kind == "sqlite":
            yield from (found for side in reversed(_SIDES) if (found := Path(f"{self.path}{side}")).exists())
        else:
            yield from (found for found in sorted(self.path.rglob("*")) if found.is_file() and not found.is_symlink())

    def _index(self) -> Path:
        """Return the index of a JSONL store; of a folder on a network file system this machine has one of its own."""
        kind = file_system_kind(str(self.path.parent))
        folder = local_index_folder(str(self.path), kind=kind, index=self._index_setting, environment=os.environ)
        return Path(folder or self.path, "index.sqlite")

    def _forget_local_index(self) -> None:
        """Remove an index that is not in the store's folder: it holds the old store's terms."""
        index = self._index()
        if index.parent != self.path and index.parent.exists():
            for path in index.parent.iterdir():
                overwrite(path)
                path.unlink()

    # ---- what is in no session -----------------------------------------------------------------------------------------

    def erased(self) -> list[tuple[str, str]]:
        """Return the ids that were erased and when."""
        if self.kind == "sqlite":
            connection = apsw.Connection(str(self.path))
            try:
                rows = connection.execute("SELECT session_id, erased_at FROM tombstones").fetchall()
            finally:
                connection.close()
            return [(str(row[0]), str(row[1])) for row in rows]
        folder = self.path / TOMBSTONES
        return [(path.name, _erased_at(path)) for path in sorted(folder.iterdir())] if folder.is_dir() else []

    def add_erased(self, erased: Sequence[tuple[str, str]]) -> None:
        """Make these ids ones that are not used again."""
        if self.kind == "sqlite":
            connection = apsw.Connection(str(self.path))
            try:
                with connection:
                    connection.executemany(
                        "INSERT OR IGNORE INTO tombstones(session_id, erased_at, removed, done) VALUES (?, ?, '{}', 1)",
                        erased,
                    )
            finally:
                connection.close()
            return
        folder = str(self.path / TOMBSTONES)
        if erased:
            make_folder(folder)
        for session_id, erased_at in erased:
            said = orjson.dumps({"session_id": session_id, "erased_at": erased_at}) + b"\n"
            replace_file(os.path.join(folder, session_id), said)

    def set_lease_tokens(self, tokens: Mapping[str, int]) -> None:
        """Let each session's next lease have a token above these, so that none of before is like one of after (C3)."""
        if self.kind == "jsonl":
            for session_id, token in tokens.items():
                lease = LeaseFile(str(self.path / session_id))
                lease.write(LeaseState(None, token, None))
                lease.close()
            return
        connection = apsw.Connection(str(self.path))
        try:
            with connection:
                heads = Heads(connection, store=str(self.path))
                heads.begin()
                for session_id, token in tokens.items():
                    row = heads.load(session_id)
                    if row is not None:
                        heads.update(row, after={**row.data, "lease_token": token})
        finally:
            connection.close()


def overwrite(path: Path) -> None:
    """Put zeros over every byte of a file, durably; one that has another name too is somebody's backup and is let alone.

    A file system that copies on writing, and a disk that moves blocks, may keep some of it.
    """
    found = path.stat()
    if found.st_nlink > 1:
        return
    size = found.st_size
    with path.open("r+b", buffering=0) as file:
        while size > 0:
            size -= file.write(_BLOCK[: min(size, len(_BLOCK))])
        os.fsync(file.fileno())


def _erased_at(path: Path) -> str:
    try:
        return str(orjson.loads(path.read_bytes())["erased_at"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
