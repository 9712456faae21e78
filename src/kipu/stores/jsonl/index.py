"""`index.sqlite`: a cache of heads, idempotency keys and terms. The logs are right where it disagrees, or is not there."""

from __future__ import annotations

import ctypes
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import apsw
import orjson

from kipu.errors import StoreCorruptError, StoreUnavailableError
from kipu.ports.head import JsonObject
from kipu.ports.store import Appended, Outcome
from kipu.stores.jsonl.entry import LogEntry
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.medium import PRIVATE_FILE
from kipu.stores.jsonl.scan import KeyPlace
from kipu.stores.tables import head_table, key_tables, schema, search_table
from kipu.stores.tables.engine import keep_plans
from kipu.stores.tables.head_query import same_json
from kipu.stores.tables.head_table import HeadRow
from kipu.stores.tables.heads import Heads
from kipu.stores.times import iso_from_us

FILE = "index.sqlite"
VERSION = 3
_SUFFIXES = ("-wal", "-shm", "-journal")
# WAL pages that gather before they are copied into the file.
_CHECKPOINT_PAGES = 4000
_WAL_TRIES, _WAL_PAUSE_S = 250, 0.02

# What a head row shows that no line says: it stands in the lease file, or in this cache alone.
NOT_OF_THE_LOG = frozenset({"lease_owner", "lease_token", "lease_until", "indexed_seq", "log"})

_TABLES = """
CREATE TABLE pending(key TEXT PRIMARY KEY, session_id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE writers(owner TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# Where in a head row the log's own place stands: as JSON within JSON, since lists read a hundred rows and need none of it.
_LOG = head_table.OWN_NOTE


_CLOSE_WAIT_S = 10.0


class Index:
    """One connection to the cache. Its owner lets one thread at a time use it."""

    def __init__(self, root: str, *, url: str, in_memory: bool = False) -> None:
        self._path = ":memory:" if in_memory else os.path.join(root, FILE)
        self._url = url
        self._in_memory = in_memory
        self._connection: apsw.Connection | None = None
        self._inode = 0
        self._heads: Heads | None = None
        self._seen_writers: tuple[object, tuple[str, ...]] = (None, ())

    # -- the file --------------------------------------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Return True when the open file is the one that has the name."""
        if self._connection is None or self._in_memory:
            return self._connection is not None
        try:
            return os.stat(self._path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def open(self) -> bool:
        """Open the cache; return False when it is not there or is of no use, and must be built."""
        self.close()
        if self._in_memory or not os.path.exists(self._path):
            return False
        try:
            self._connect()
            version = self.sql("PRAGMA user_version").fetchone()
            self.sql("SELECT 1 FROM heads, writers, pending, search_docs LIMIT 1").fetchone()
        except (apsw.Error, OSError):
            self.close()
            return False
        if version != (VERSION,):
            self.close()
            return False
        return True

    def build(self) -> None:
        """Begin an empty cache in the place of what is there. The caller holds off every other user."""
        self.close()
        if not self._in_memory:
            for path in (self._path, *(self._path + suffix for suffix in _SUFFIXES)):
                if os.path.exists(path):
                    os.unlink(path)
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE))
        self._connect()
        with self.transaction():
            schema.create(self._open)
            self.sql(_TABLES)

    def complete(self) -> None:
        """Say that every session is in it: until then, whoever opens it builds it anew."""
        self.sql(f"PRAGMA user_version = {VERSION}")

    def _connect(self) -> None:
        self._connection = connection = apsw.Connection(self._path)
        self._heads = Heads(connection, store=self._url)
        self._seen_writers = (None, ())
        connection.set_busy_timeout(10_000)
        keep_plans(connection)
        connection.create_scalar_function("kipu_same", same_json, 2, deterministic=True)
        self.sql("PRAGMA journal_mode = WAL")
        # Not durable, and need not be; but whole after a power cut, which OFF would not be.
        self.sql("PRAGMA synchronous = NORMAL")
        self.sql("PRAGMA secure_delete = ON")
        self.sql(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if not self._in_memory:
            # Closing must not remove a log that may belong to the next file of this name.
            flag = ctypes.c_int(1)
            connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(flag))
            self._inode = os.stat(self._path).st_ino

    def close(self) -> None:
        """Close the connection, leaving a short write-ahead log where nobody else needs it.

        A read whose caller was cancelled goes on in its thread: its end is waited for, and made where it does not come.
        """
        deadline_s = time.monotonic() + _CLOSE_WAIT_S
        while self._connection is not None:
            try:
                self._close(self._connection)
            except apsw.ThreadingViolationError:
                if time.monotonic() > deadline_s:
                    self._connection.interrupt()
                time.sleep(0.005)

    def _close(self, connection: apsw.Connection) -> None:
        if not self._in_memory and self.is_current():
            connection.set_busy_timeout(0)
            try:
                self.sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except apsw.ThreadingViolationError:
                raise
            except apsw.Error:
                pass  # it is a cache, and its log works as well where it is
        connection.close()
        self._connection = self._heads = None

    @property
    def _open(self) -> apsw.Connection:
        return self.heads.connection

    @property
    def heads(self) -> Heads:
        """Return the heads of the open file."""
        if self._heads is None:
            raise StoreCorruptError(store=self._url, reason="its index is not open")
        return self._heads

    @property
    def connection(self) -> apsw.Connection:
        """Return the open connection, for the shared tables."""
        return self._open

    def sql(self, statement: str, bindings: Sequence[Any] = ()) -> apsw.Cursor:
        """Run a statement."""
        return self._open.execute(statement, bindings)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make what is done inside happen together."""
        heads = self.heads
        self.sql("BEGIN IMMEDIATE")
        try:
            heads.begin()
            yield
            self.sql("COMMIT")
            heads.committed()
        except BaseException:
            heads.forget()
            if heads.connection.in_transaction:
                self.sql("ROLLBACK")
            raise

    # -- heads and logs --------------------------------------------------------------------------------------------------

    def row(self, session_id: str) -> HeadRow | None:
        """Return the head row as it is cached, inside a transaction."""
        return self.heads.load(session_id)

    def entry(self, session_id: str) -> LogEntry | None:
        """Return what is remembered of a log, or None when nothing is that can be believed."""
        try:
            row = head_table.load(self._open, session_id, store=self._url)
        except StoreCorruptError:
            return None
        return None if row is None else _entry(session_id, row.data)

    def places(self) -> dict[str, tuple[int, int, int, int] | None]:
        """Return segment, size, time and inode of every log as remembered; None for a row that cannot be believed."""
        found: dict[str, tuple[int, int, int, int] | None] = {}
        for session_id, data, crc in self.sql("SELECT session_id, data, crc FROM heads"):
            text = data.encode()
            log = orjson.loads(text).get(_LOG) if zlib.crc32(text) == crc else None
            found[session_id] = tuple(orjson.loads(log)[:4]) if log else None
        return found

    def last_seqs(self) -> dict[str, int]:
        """Return the last seq of every session."""
        rows = self.sql("SELECT session_id, json_extract(data, '$.last_seq') FROM heads")
        return {str(session_id): int(last_seq or 0) for session_id, last_seq in rows}

    def put(self, entry: LogEntry, lease: LeaseState) -> int:
        """Remember a log and its head, inside a transaction; return the session's number."""
        try:
            known = self.row(entry.session_id)
        except StoreCorruptError:
            self.remove(entry.session_id)
            known = None
        indexed = known.data.get("indexed_seq", 0) if known else 0
        if known and entry.row.get("shared_seq") != known.data.get("shared_seq"):
            indexed = 0  # it has taken over events that its index does not know
        last_seq = entry.row.get("last_seq", 0)
        log = (entry.segment, entry.size, entry.mtime_ns, entry.inode, entry.healthy, entry.offsets)
        row: JsonObject = {
            **entry.row,
            "last_seq": last_seq,
            "indexed_seq": min(indexed, last_seq),
            "lease_owner": lease.owner,
            "lease_token": lease.token,
            "lease_until": lease.until,
            _LOG: orjson.dumps(log).decode(),
        }
        return self._put_row(known, row)

    def put_lease(self, session_id: str, lease: LeaseState) -> None:
        """Show a lease in the head row, inside a transaction."""
        known = self.row(session_id)
        if known is not None:
            self._put_row(known, lease.onto(known.data))

    def put_indexed(self, session_id: str, seq: int) -> int | None:
        """Move `indexed_seq` forward, inside a transaction; return the session's number, None when it is gone."""
        known = self.row(session_id)
        if known is None:
            return None
        if known.data.get("indexed_seq", 0) < seq:
            self._put_row(known, {**known.data, "indexed_seq": seq})
        return known.number

    def _put_row(self, known: HeadRow | None, row: JsonObject) -> int:
        heads = self.heads
        return (heads.insert(row) if known is None else heads.update(known, after=row)).number

    def remove(self, session_id: str) -> dict[str, int]:
        """Forget a session, inside a transaction; return how much went."""
        number = head_table.number_of(self._open, session_id)
        if number is None:
            return {}
        terms = search_table.remove_session(self._open, number)
        removed = {"events": self._counted(session_id), "search": terms}
        removed |= key_tables.remove_session(self._open, number)
        self.sql("DELETE FROM pending WHERE session_id = ?", (session_id,))
        self.heads.delete(session_id, number)
        return {**removed, "heads": 1}

    def _counted(self, session_id: str) -> int:
        """Return how many events the head counts, as far as the index knows; a damaged row counts none."""
        try:
            known = self.row(session_id)
        except StoreCorruptError:
            return 0
        return int(known.data.get("event_count", 0)) if known is not None else 0

    def empty_wal(self) -> None:
        """Leave no old page in the write-ahead log. Raises: StoreUnavailableError while some reader needs one."""
        for _ in range(_WAL_TRIES):
            row = self.sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if row is None or row[0] == 0:
                return
            time.sleep(_WAL_PAUSE_S)
        raise StoreUnavailableError(store=self._url, reason="a reader keeps old pages of its index; call again")

    # -- idempotency -----------------------------------------------------------------------------------------------------

    def outcome(self, key: str, *, now_us: int) -> Appended | None:
        """Return what was appended under a key."""
        return key_tables.outcome(self._open, key, now_us=now_us)

    def outcomes(self, session_id: str, *, now_us: int) -> list[Outcome]:
        """Return a session's batches that have a key."""
        number = head_table.number_of(self._open, session_id)
        return [] if number is None else key_tables.outcomes(self._open, number, now_us=now_us)

    def key_places(self, session_id: str) -> list[KeyPlace]:
        """Return every key of a session that is still remembered, with its batch and when it came."""
        number = head_table.number_of(self._open, session_id)
        sql = "SELECT key, first_seq, last_seq, at_us FROM idempotency WHERE session = ? ORDER BY first_seq"
        rows: list[Any] = self.sql(sql, (number,)).fetchall()
        return [KeyPlace(str(row[0]), int(row[1]), int(row[2]), iso_from_us(int(row[3]))) for row in rows]

    def remember(self, session_id: str, keys: Sequence[KeyPlace], *, now_us: int) -> None:
        """Keep where keys stand, and that they are pending no more, inside a transaction. The first place within the retention counts."""
        known = self.row(session_id) if keys else None
        for key, first_seq, last_seq, timestamp in keys:
            self.sql("DELETE FROM pending WHERE key = ?", (key,))
            if known is not None and self.outcome(key, now_us=now_us) is None:
                appended = Appended(session_id, first_seq, last_seq)
                at_us = _microseconds(timestamp, default=now_us)
                key_tables.remember(self._open, key, number=known.number, appended=appended, now_us=at_us)

    def pending(self, key: str) -> str | None:
        """Return the session to which somebody may have appended under a key."""
        row = self.sql("SELECT session_id FROM pending WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def expect(self, key: str, session_id: str) -> None:
        """Say that a batch with this key is about to be appended."""
        self.sql("INSERT OR REPLACE INTO pending(key, session_id) VALUES (?, ?)", (key, session_id))

    def settle(self, session_id: str) -> None:
        """Forget what was expected of a session: its log has been read up to its end, under its lock."""
        self.sql("DELETE FROM pending WHERE session_id = ?", (session_id,))

    # -- writers ---------------------------------------------------------------------------------------------------------

    def register(self, owner: str) -> None:
        """Say, durably, that a process writes: if it dies, somebody must look after what it left."""
        self.sql("PRAGMA synchronous = FULL")
        self.sql("INSERT OR REPLACE INTO writers(owner) VALUES (?)", (owner,))
        self._seen_writers = (None, ())
        self.sql("PRAGMA synchronous = NORMAL")

    def unregister(self, owner: str) -> None:
        """Say that a process has finished, or that what it left was looked after."""
        self.sql("DELETE FROM writers WHERE owner = ?", (owner,))

    def writers(self) -> list[str]:
        """Return the processes that write, or that died."""
        return [row[0] for row in self.sql("SELECT owner FROM writers")]

    def is_alone(self, owner: str) -> bool:
        """Return True when `owner` is the only writer. Looks at the table again only after another connection has committed."""
        version = self.sql("PRAGMA data_version").fetchone()
        if self._seen_writers[0] != version:
            self._seen_writers = (version, tuple(self.writers()))
        return self._seen_writers[1] == (owner,)


def _entry(session_id: str, data: JsonObject) -> LogEntry | None:
    note = data.get(_LOG)
    if note is None:
        return None
    log = orjson.loads(note)
    row = {name: value for name, value in data.items() if name not in NOT_OF_THE_LOG}
    offsets = tuple((seq, offset) for seq, offset in log[5])
    return LogEntry(session_id, log[0], log[1], log[2], log[3], log[4], offsets, row)


def _microseconds(timestamp: str, *, default: int) -> int:
    """Return the time an event carries; events say what they like, and an odd one counts as new (situation 58)."""
    try:
        moment = datetime.fromisoformat(timestamp)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        return default
