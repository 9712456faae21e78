"""The key vault as one file: wrapped data keys, apart from the log, so that destroying one destroys what backups of the log hold."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import orjson

from kipu.errors import (
    KeyRetiredError,
    KeysBusyError,
    NewerFormatError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from kipu.ports.vault import KeyVault, VaultContent, WrappedKey

T = TypeVar("T")
_FORMAT = 1
_BUSY_MS = 10_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS data_keys (
  session_id TEXT NOT NULL, epoch INTEGER NOT NULL, kek TEXT NOT NULL, wrapped BLOB NOT NULL,
  PRIMARY KEY (session_id, epoch)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS data_keys_by_kek ON data_keys (kek);
CREATE TABLE IF NOT EXISTS blobs (
  session_id TEXT NOT NULL, digest TEXT NOT NULL, place TEXT NOT NULL, PRIMARY KEY (session_id, digest)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shredded (session_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# Not WAL: what a deleted key left there would stay until a checkpoint. `secure_delete` overwrites it in the pages.
_PRAGMAS = f"""
PRAGMA busy_timeout = {_BUSY_MS}; PRAGMA secure_delete = ON; PRAGMA synchronous = EXTRA; PRAGMA journal_mode = TRUNCATE;
"""


_MEMORY = ":memory:"
_SETTINGS, _RETIRED = "settings", "retired"
SALT = "salt"


def _json_of(connection: apsw.Connection, name: str, otherwise: Any) -> Any:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return orjson.loads(row[0]) if row is not None else otherwise


def _put_json(connection: apsw.Connection, name: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, orjson.dumps(value)))


class SqliteVault:
    """Keep wrapped keys in one SQLite file that any number of processes may open (contract: `ports.vault.KeyVault`)."""

    def __init__(self, path: Path | None) -> None:
        self.place = str(path) if path is not None else _MEMORY
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None
        with self._translated():
            if path is not None and not path.exists():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = connection = apsw.Connection(self.place)
            list(connection.execute(_PRAGMAS))  # a statement that gives a row waits for it to be taken
            found = connection.execute("PRAGMA user_version").get
            if found > _FORMAT:
                connection.close()
                raise NewerFormatError(store=self.place, found=found, known=_FORMAT, reason="its format is newer")
            if found < _FORMAT:
                self._transaction(self._create)

    def _create(self, connection: apsw.Connection) -> None:
        if connection.execute("PRAGMA user_version").get == _FORMAT:  # another process was first
            return
        if connection.execute("SELECT count(*) FROM sqlite_schema").get:
            raise StoreCorruptError(store=self.place, reason="it is a database, and not a key vault")
        connection.execute(f"{_SCHEMA} PRAGMA user_version = {_FORMAT};")

    async def keys(self, session_id: str) -> list[WrappedKey]:
        """Return the session's wrapped keys by epoch; none where there are none."""
        sql = "SELECT session_id, epoch, kek, wrapped FROM data_keys WHERE session_id = ? ORDER BY epoch"
        return [WrappedKey(*row) for row in self._rows(sql, (session_id,))]

    async def add(self, key: WrappedKey) -> WrappedKey:
        """Keep a key where there is none, and return the one that stands there. Raises: KeyRetiredError."""

        def work(connection: apsw.Connection) -> WrappedKey:
            if key.kek in _json_of(connection, _RETIRED, []):
                raise KeyRetiredError(store=self.place, reason="", kek=key.kek)
            connection.execute("INSERT OR IGNORE INTO data_keys VALUES (?, ?, ?, ?)", key)
            sql = "SELECT session_id, epoch, kek, wrapped FROM data_keys WHERE session_id = ? AND epoch = ?"
            return WrappedKey(*next(iter(connection.execute(sql, key[:2]))))

        return await self._write(work)

    @asynccontextmanager
    async def rotating(self) -> AsyncIterator[None]:
        """Be the only one who rotates, in any process; a killed one leaves nothing behind. Raises: KeysBusyError."""
        if self.place == _MEMORY:
            yield
            return
        descriptor = os.open(f"{self.place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise KeysBusyError(store=self.place, reason="") from error
            yield
        finally:
            os.close(descriptor)

    async def retire(self, kek: str) -> None:
        """Let `kek` alone wrap from now on: every other key that wraps something is refused by `add` in every process."""

        def work(connection: apsw.Connection) -> None:
            wrapping = {str(row[0]) for row in connection.execute("SELECT DISTINCT kek FROM data_keys")}
            retired = {*_json_of(connection, _RETIRED, []), *wrapping} - {kek}
            _put_json(connection, _RETIRED, sorted(retired))

        await self._write(work)

    async def rewrap(self, pairs: Sequence[tuple[WrappedKey, WrappedKey]]) -> int:
        """Put each new form where the old one still stands, all in one transaction; return how many it was."""

        def work(connection: apsw.Connection) -> int:
            sql = "UPDATE data_keys SET kek = ?, wrapped = ? WHERE session_id = ? AND epoch = ? AND wrapped = ?"
            before = connection.total_changes()
            for old, new in pairs:
                connection.execute(sql, (new.kek, new.wrapped, old.session_id, old.epoch, old.wrapped))
            return connection.total_changes() - before

        return await self._write(work)

    async def not_under(self, kek: str, *, after: tuple[str, int], limit: int) -> list[WrappedKey]:
        """Return keys that another key-encryption key wraps, in order, from behind a place."""
        sql = """SELECT session_id, epoch, kek, wrapped FROM data_keys
            WHERE kek <> ? AND (session_id, epoch) > (?, ?) ORDER BY session_id, epoch LIMIT ?"""
        return [WrappedKey(*row) for row in self._rows(sql, (kek, *after, limit))]

    async def counts(self) -> dict[str, int]:
        """Return how many data keys each key-encryption key wraps."""
        return dict(self._rows("SELECT kek, count(*) FROM data_keys GROUP BY kek", ()))

    async def sizes(self) -> tuple[int, int, int]:
        """Return how many sessions have keys, how many keys that is, and of how many they were destroyed."""
        sql = """SELECT (SELECT count(DISTINCT session_id) FROM data_keys WHERE session_id <> ''),
            (SELECT count(*) FROM data_keys WHERE session_id <> ''), (SELECT count(*) FROM shredded)"""
        sessions, keys, shredded = self._rows(sql, ())[0]
        return int(sessions), int(keys), int(shredded)

    async def shred(self, session_id: str) -> None:
        """Destroy the session's keys and leave its id behind, so that none is made for it again."""

        def work(connection: apsw.Connection) -> None:
            connection.execute("DELETE FROM data_keys WHERE session_id = ?", (session_id,))
            connection.execute("DELETE FROM blobs WHERE session_id = ?", (session_id,))
            connection.execute("INSERT OR IGNORE INTO shredded VALUES (?)", (session_id,))

        await self._write(work)

    async def is_shredded(self, session_id: str) -> bool:
        """Return whether the session's keys were destroyed."""
        return bool(self._rows("SELECT 1 FROM shredded WHERE session_id = ?", (session_id,)))

    async def constant(self, name: str, value: bytes) -> bytes:
        """Return what the vault has under a name; `value` becomes that where it has nothing. Nothing is written where it has."""
        known = self._rows("SELECT value FROM meta WHERE name = ?", (name,))
        if known:
            return bytes(known[0][0])

        def work(connection: apsw.Connection) -> bytes:
            connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, value))
            kept: bytes = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).get
            return kept

        return await self._write(work)

    async def settings(self) -> dict[str, Any]:
        """Return what the store is to be opened with: `source`, `older`, `chain`, `fields`. No secret is among it."""
        known = self._rows("SELECT value FROM meta WHERE name = ?", (_SETTINGS,))
        found: dict[str, Any] = orjson.loads(known[0][0]) if known else {}
        return found

    async def set_settings(self, changes: Mapping[str, Any]) -> None:
        """Change settings; None removes one. Nothing is written where they are so already."""
        known = await self.settings()
        if all(known.get(name) == value for name, value in changes.items()):
            return

        def work(connection: apsw.Connection) -> None:
            merged = {**_json_of(connection, _SETTINGS, {}), **changes}
            _put_json(connection, _SETTINGS, {name: value for name, value in merged.items() if value is not None})

        await self._write(work)

    async def sessions(self, *, after: str, limit: int) -> list[tuple[str, int]]:
        """Return ids of sessions that have keys, from behind one, each with its newest epoch."""
        sql = """SELECT session_id, max(epoch) FROM data_keys WHERE session_id > ?
            GROUP BY session_id ORDER BY session_id LIMIT ?"""
        return [(str(row[0]), int(row[1])) for row in self._rows(sql, (after, limit))]

    async def version(self) -> int:
        """Return a number that changes when another connection has changed the vault."""
        return int(self._rows("PRAGMA data_version", ())[0][0])

    async def blob_places(self, session_id: str) -> dict[str, str]:
        """Return the hidden digests of a session's blobs with their places."""
        return dict(self._rows("SELECT digest, place FROM blobs WHERE session_id = ?", (session_id,)))

    async def blob_place(self, session_id: str, digest: str) -> str | None:
        """Return the place of a blob by its hidden digest."""
        found = self._rows("SELECT place FROM blobs WHERE session_id = ? AND digest = ?", (session_id, digest))
        return str(found[0][0]) if found else None

    async def place_blob(self, session_id: str, digest: str, *, place: str, instead_of: str | None = None) -> None:
        """Remember where a blob is; the first place stays, but for the one that this is `instead_of`."""
        text = (
            "INSERT INTO blobs AS known VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET place = excluded.place WHERE known.place = ?"
        )

        def work(connection: apsw.Connection) -> None:
            connection.execute(text, (session_id, digest, place, instead_of))

        await self._write(work)

    async def content(self) -> VaultContent:
        """Return all that is in the vault, for another one to keep."""
        salt = self._rows("SELECT value FROM meta WHERE name = ?", (SALT,))
        keys = self._rows("SELECT session_id, epoch, kek, wrapped FROM data_keys ORDER BY session_id, epoch", ())
        return VaultContent(
            bytes(salt[0][0]) if salt else None,
            await self.settings(),
            tuple(WrappedKey(*row) for row in keys),
            tuple(self._rows("SELECT session_id, digest, place FROM blobs", ())),
            tuple(row[0] for row in self._rows("SELECT session_id FROM shredded", ())),
        )

    async def close(self) -> None:
        """Close the file."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock, self._translated():
            return list(self._open().execute(sql, values))

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        return await asyncio.to_thread(self._transaction, work)

    def _transaction(self, work: Callable[[apsw.Connection], T]) -> T:
        with self._lock, self._translated():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                outcome = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return outcome

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            raise StoreClosedError(store=self.place)
        return self._connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self._translation(error) from error

    def _translation(self, error: Exception) -> StoreError:
        reason = f"its key vault: {error}"
        kinds: list[tuple[type[Exception] | tuple[type[Exception], ...], type[StoreError]]] = [
            ((apsw.CorruptError, apsw.NotADBError), StoreCorruptError),
            (apsw.FullError, StoreFullError),
            (apsw.ReadOnlyError, StoreReadOnlyError),
        ]
        for kind, ours in kinds:
            if isinstance(error, kind):
                return ours(store=self.place, reason=reason)
        return StoreUnavailableError(store=self.place, reason=reason)


class VaultFile:
    """Say where the vault of a store of files is (contract: `ports.vault.VaultPlace`); without a path it is in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @property
    def shown(self) -> str:
        """Return the path."""
        return str(self.path)

    async def is_there(self) -> bool:
        """Return whether the file is there."""
        return self.path is not None and self.path.exists()

    async def open(self) -> KeyVault:
        """Return the vault, its file made for its owner only where there is none."""
        return SqliteVault(self.path)
