"""The file that facts are kept in: made when the first fact comes, and left without a byte of what was forgotten."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from kipu.errors import EncryptionError, NewerFormatError, StoreClosedError, StoreCorruptError
from kipu.memory.statements import Asked, Row, Statement, Steps
from kipu.stores.sqlite.connection import create_file
from kipu.stores.tables.driver_errors import translated
from kipu.stores.tables.engine import check_engine
from kipu.stores.tables.scrub import scrub

T = TypeVar("T")
FORMAT = 1
_APPLICATION = 0x6B69706D  # "kipm"
_BUSY_MS = 10_000
# Not WAL: what was forgotten would stay in the log until a checkpoint. The rollback journal is cut to nothing at each commit.
_SETTINGS = (
    "secure_delete = ON",
    "journal_mode = TRUNCATE",
    "synchronous = EXTRA",
    "temp_store = MEMORY",
    "trusted_schema = OFF",
    "cell_size_check = ON",
)
_SCHEMA = """
CREATE TABLE facts (
  fact_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, scope TEXT NOT NULL, subject TEXT NOT NULL,
  kind TEXT NOT NULL, text TEXT NOT NULL, fingerprint TEXT NOT NULL, slot TEXT, confidence REAL NOT NULL,
  created_at TEXT NOT NULL, origin TEXT NOT NULL, status TEXT NOT NULL, findings TEXT NOT NULL,
  superseded_by TEXT, reason TEXT, used_at TEXT, uses INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE INDEX facts_by_space ON facts (tenant, owner, scope, subject, status, created_at);
CREATE INDEX facts_by_form ON facts (fingerprint);
CREATE INDEX facts_by_successor ON facts (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE TABLE sources (
  fact_id TEXT NOT NULL, session_id TEXT NOT NULL, seq INTEGER NOT NULL, undone INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (fact_id, session_id, seq)) WITHOUT ROWID;
CREATE INDEX sources_by_session ON sources (session_id, seq);
CREATE TABLE aliases (alias TEXT PRIMARY KEY, fact_id TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX aliases_by_fact ON aliases (fact_id);
CREATE TABLE terms (term TEXT NOT NULL, fact_id TEXT NOT NULL, PRIMARY KEY (term, fact_id)) WITHOUT ROWID;
CREATE INDEX terms_by_fact ON terms (fact_id);
CREATE TABLE progress (
  session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, consolidated_seq INTEGER NOT NULL, rewind_seq INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE announced (session_id TEXT NOT NULL, token INTEGER NOT NULL, PRIMARY KEY (session_id, token)) WITHOUT ROWID;
CREATE TABLE state (is_sealed INTEGER NOT NULL, forgettings INTEGER NOT NULL);
"""


class FactDatabase:
    """Run work on one SQLite file that any number of processes may open; each piece is one durable transaction.

    A file that is not there is empty: reading makes none. Without a path it is in this object's memory only.
    """

    def __init__(self, path: Path | None, *, is_sealed: bool = False) -> None:
        check_engine()
        self._is_sealed = is_sealed
        self.place = str(path) if path is not None else ":memory:"
        self._path = path
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None
        self._is_closed = False

    async def read(self, work: Callable[[], Steps[T]], *, empty: T) -> T:
        """Return what `work` finds, `empty` where nothing was ever kept."""
        return await asyncio.to_thread(self._read, work, empty)

    def _read(self, work: Callable[[], Steps[T]], empty: T) -> T:
        with self._lock, translated(self.place):
            if self._is_closed:
                raise StoreClosedError(store=self.place)
            if not self._holds_something():
                return empty
            connection = self._open()
            connection.execute("BEGIN")  # one state of the file for all that the work reads
            try:
                return _carry_out(connection, work())
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    async def write(self, work: Callable[[], Steps[T]]) -> T:
        """Do `work` in one transaction, whole or not at all."""
        return await asyncio.to_thread(self._write, work)

    def _write(self, work: Callable[[], Steps[T]]) -> T:
        with self._lock, translated(self.place):
            return _transaction(self._open(), lambda connection: _carry_out(connection, work()))

    async def forget(self, work: Callable[[], Steps[T]], *, nothing: T) -> T:
        """Do `work` and zero every copy of what it removed; a kill in between is made good by the next call. It makes no file."""
        return await asyncio.to_thread(self._forget, work, nothing)

    def _forget(self, work: Callable[[], Steps[T]], nothing: T) -> T:
        with self._lock, translated(self.place):
            if not self._is_closed and not self._holds_something():
                return nothing
            outcome = self._write(work)
            if self._path is not None:
                # Pages that were balanced keep old rows in their gaps. What is counted up makes others drop their copies.
                _transaction(self._open(), _zero_gaps)
            return outcome

    def _holds_something(self) -> bool:
        return self._connection is not None or (self._path is not None and _holds_something(self._path))

    def _open(self) -> apsw.Connection:
        if self._is_closed:
            raise StoreClosedError(store=self.place)
        if self._connection is None:
            if self._path is not None:
                create_file(os.path.abspath(self._path))
            self._connection = _connect(self.place, is_sealed=self._is_sealed)
        return self._connection

    async def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


def _connect(place: str, *, is_sealed: bool) -> apsw.Connection:
    connection = apsw.Connection(place)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").fetchall()
        if not _is_prepared(connection, place, is_sealed=is_sealed):  # asked first, so that a file can be only read too
            _transaction(connection, lambda opened: _prepare(opened, place, is_sealed))
    except BaseException:
        connection.close()
        raise
    return connection


def _is_prepared(connection: apsw.Connection, place: str, *, is_sealed: bool) -> bool:
    """Say whether the file has the tables. Raises: NewerFormatError, StoreCorruptError, EncryptionError."""
    found = int(connection.execute("PRAGMA user_version").get)
    application = int(connection.execute("PRAGMA application_id").get)
    if found > FORMAT:
        raise NewerFormatError(store=place, found=found, known=FORMAT, reason="its format is newer")
    if found == FORMAT and application == _APPLICATION:
        _require_seal(place, is_sealed=is_sealed, found=bool(connection.execute("SELECT is_sealed FROM state").get))
        return True
    if connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise StoreCorruptError(store=place, reason="it is no memory file of Kipu")
    return False


def _prepare(connection: apsw.Connection, place: str, is_sealed: bool) -> None:
    if _is_prepared(connection, place, is_sealed=is_sealed):  # another process was faster
        return
    connection.execute(f"{_SCHEMA} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {FORMAT};")
    connection.execute("INSERT INTO state VALUES (?, 0)", (is_sealed,))


def _require_seal(place: str, *, is_sealed: bool, found: bool) -> None:
    if found and not is_sealed:
        raise EncryptionError(store=place, reason="the memory is sealed, and its store was opened without keys")
    if is_sealed and not found:
        raise EncryptionError(
            store=place, reason="the memory is not sealed, and its store is; seal it with kipu encrypt"
        )


_TABLE = re.compile(r"@(\w+)")


def _carry_out(connection: apsw.Connection, steps: Steps[T]) -> T:
    """Run each statement and hand its rows to the work. Nobody has to be held: whoever writes has the file alone."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_answered(connection, asked))
    except StopIteration as end:
        outcome: T = end.value
        return outcome


def _answered(connection: apsw.Connection, asked: Asked) -> list[Row]:
    if not isinstance(asked, Statement):
        return []
    return list(connection.execute(_TABLE.sub(r"\1", asked.sql), tuple(asked.values)))


def _transaction(connection: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        outcome = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return outcome


def _zero_gaps(connection: apsw.Connection) -> None:
    scrub(connection)
    connection.execute("UPDATE state SET forgettings = forgettings + 1")


def _holds_something(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
