"""Bindings, idempotency keys and tombstones: three small tables that say what a name or an id stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw
import orjson

from kipu.ports.store import IDEMPOTENCY_RETENTION_S, Appended, ErasureReceipt, Outcome, Tombstone

_RETENTION_US = IDEMPOTENCY_RETENTION_S * 1_000_000
_RESOLVE = "SELECT session_id FROM bindings JOIN heads ON heads.id = bindings.session WHERE bindings.key = ?"
_OUTCOME = """
SELECT heads.session_id, known.first_seq, known.last_seq FROM idempotency AS known JOIN heads ON heads.id = known.session
WHERE known.key = ? AND known.at_us > ?
"""
_OUTCOMES = """
SELECT key, first_seq, last_seq FROM idempotency WHERE session = ? AND at_us > ? ORDER BY first_seq
"""
_KEYS = "SELECT key FROM bindings WHERE session = ? ORDER BY key"
_REMEMBER = "INSERT OR REPLACE INTO idempotency(key, session, first_seq, last_seq, at_us) VALUES (?, ?, ?, ?, ?)"
# Oldest rows have the lowest ids, so that looking for what is over costs nothing where nothing is.
_PRUNE = "DELETE FROM idempotency WHERE id IN (SELECT id FROM idempotency ORDER BY id LIMIT 32) AND at_us <= ?"
PRUNE_EVERY = 16


def resolve(connection: apsw.Connection, key: str) -> str | None:
    """Return the session id that `key` leads to."""
    row = connection.execute(_RESOLVE, (key,)).fetchone()
    return None if row is None else str(row[0])


def keys(connection: apsw.Connection, number: int) -> list[str]:
    """Return the keys that lead to a session."""
    return [str(row[0]) for row in connection.execute(_KEYS, (number,))]


def bind(connection: apsw.Connection, key: str, *, number: int) -> None:
    """Make `key` lead to a session."""
    connection.execute("INSERT OR REPLACE INTO bindings(key, session) VALUES (?, ?)", (key, number))


def outcome(connection: apsw.Connection, key: str, *, now_us: int) -> Appended | None:
    """Return what was appended under an idempotency key within the retention."""
    row = connection.execute(_OUTCOME, (key, now_us - _RETENTION_US)).fetchone()
    return None if row is None else Appended(row[0], row[1], row[2], duplicate=True)


def outcomes(connection: apsw.Connection, number: int, *, now_us: int) -> list[Outcome]:
    """Return a session's batches that have an idempotency key within the retention, in order."""
    rows = connection.execute(_OUTCOMES, (number, now_us - _RETENTION_US))
    return [Outcome(str(key), int(str(first)), int(str(last))) for key, first, last in rows]


def remember(connection: apsw.Connection, key: str, *, number: int, appended: Appended, now_us: int) -> None:
    """Keep the outcome of an append under its key, and now and then forget what is older than the retention."""
    connection.execute(_REMEMBER, (key, number, appended.first_seq, appended.last_seq, now_us))
    if connection.last_insert_rowid() % PRUNE_EVERY == 0:
        connection.execute(_PRUNE, (now_us - _RETENTION_US,))


def remove_session(connection: apsw.Connection, number: int) -> dict[str, int]:
    """Remove a session's bindings and idempotency keys; return how many."""
    removed = {}
    for table, name in (("bindings", "bindings"), ("idempotency", "idempotency_keys")):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (number,))
        removed[name] = connection.changes()
    return removed


def is_erased(connection: apsw.Connection, session_id: str) -> bool:
    """Return whether a session of this id was erased."""
    return connection.execute("SELECT 1 FROM tombstones WHERE session_id = ?", (session_id,)).fetchone() is not None


def bury(connection: apsw.Connection, session_id: str, *, erased_at: str, removed: Mapping[str, int]) -> None:
    """Leave a tombstone that says the erasure is not finished."""
    row = (session_id, erased_at, orjson.dumps(dict(removed)).decode())
    connection.execute(
        "INSERT OR REPLACE INTO tombstones(session_id, erased_at, removed, done) VALUES (?, ?, ?, 0)", row
    )


def tombstones(connection: apsw.Connection, *, after: str, limit: int) -> list[Tombstone]:
    """Return ids that were erased, those behind `after`, sorted."""
    sql = "SELECT session_id, erased_at FROM tombstones WHERE session_id > ? ORDER BY session_id LIMIT ?"
    return [Tombstone(str(row[0]), str(row[1])) for row in connection.execute(sql, (after, limit))]


def take_ids(connection: apsw.Connection, found: Sequence[Tombstone]) -> None:
    """Make ids taken for ever that were erased elsewhere, but for those that there are sessions of."""
    sql = (
        "INSERT OR IGNORE INTO tombstones(session_id, erased_at, removed, done) SELECT ?1, ?2, '{}', 1"
        " WHERE NOT EXISTS (SELECT 1 FROM heads WHERE session_id = ?1)"
    )
    connection.executemany(sql, [(each.session_id, each.erased_at) for each in found])


def unfinished(connection: apsw.Connection, session_id: str | None = None) -> list[ErasureReceipt]:
    """Return the erasures that are not finished."""
    sql = "SELECT session_id, erased_at, removed FROM tombstones WHERE done = 0"
    rows = connection.execute(sql).fetchall()
    receipts = [ErasureReceipt(str(row[0]), str(row[1]), orjson.loads(str(row[2]))) for row in rows]
    return [receipt for receipt in receipts if session_id in {None, receipt.session_id}]


def finish(connection: apsw.Connection, session_id: str) -> None:
    """Mark an erasure as finished."""
    connection.execute("UPDATE tombstones SET done = 1 WHERE session_id = ?", (session_id,))
