"""What changes beside the log, each as one function inside the writer's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import apsw

from kipu.errors import ConflictError, LeaseLostError, SessionNotFoundError
from kipu.ports.owner import Liveness
from kipu.ports.store import IndexEntry, Lease
from kipu.stores.leasing import claimed, released, renewed
from kipu.stores.tables import head_table, key_tables, search_table


def require(connection: apsw.Connection, session_id: str, *, store: str) -> head_table.HeadRow:
    """Return the session's row. Raises: SessionNotFoundError."""
    row = head_table.load(connection, session_id, store=store)
    if row is None:
        raise SessionNotFoundError(session_id=session_id)
    return row


def claim(
    connection: apsw.Connection,
    session_id: str,
    *,
    owner: str,
    ttl_s: float,
    now_us: int,
    liveness: Liveness,
    store: str,
) -> Lease | None:
    """Give the lease to `owner`, or return None while another's is live."""
    row = require(connection, session_id, store=store)
    outcome = claimed(row.data, owner=owner, ttl_s=ttl_s, now_us=now_us, liveness=liveness)
    if outcome is None:
        return None
    after, lease = outcome
    head_table.update(connection, row, after=after)
    return lease


def renew(connection: apsw.Connection, lease: Lease, *, now_us: int, store: str) -> Lease:
    """Move the lease's expiry. Raises: LeaseLostError."""
    row = head_table.load(connection, lease.session_id, store=store)
    if row is None:
        raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=None)
    after, fresh = renewed(row.data, lease, now_us=now_us)
    head_table.update(connection, row, after=after)
    return fresh


def release(connection: apsw.Connection, lease: Lease, *, expected_seq: int | None, store: str) -> bool:
    """Take the lease back, unless something arrived since."""
    row = head_table.load(connection, lease.session_id, store=store)
    if row is None:
        return True
    outcome = released(row.data, lease, expected_seq=expected_seq)
    if isinstance(outcome, bool):
        return outcome
    head_table.update(connection, row, after=outcome)
    return True


def bind(connection: apsw.Connection, key: str, *, session_id: str, expected: str | None, store: str) -> None:
    """Make the key lead to the session. Raises: ConflictError, SessionNotFoundError."""
    row = require(connection, session_id, store=store)
    actual = key_tables.resolve(connection, key)
    if actual != expected:
        raise ConflictError(session_id=key, expected=expected, actual=actual)
    key_tables.bind(connection, key, number=row.number)


def put_blob(connection: apsw.Connection, session_id: str, *, data: bytes, store: str) -> str:
    """Keep the bytes under their digest."""
    row = require(connection, session_id, store=store)
    digest = hashlib.sha256(data).hexdigest()
    connection.execute(
        "INSERT OR IGNORE INTO blobs(session, digest, data) VALUES (?, ?, ?)", (row.number, digest, data)
    )
    return digest


def index(
    connection: apsw.Connection, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int], store: str
) -> None:
    """Take in terms of events that are there, and move `indexed_seq`."""
    numbers: dict[str, int | None] = {}
    for session_id, seq, terms in ((entry.session_id, entry.seq, entry.terms) for entry in entries):
        if session_id not in numbers:
            numbers[session_id] = head_table.number_of(connection, session_id)
        number = numbers[session_id]
        event = connection.execute("SELECT id FROM events WHERE session = ? AND seq = ?", (number, seq)).fetchone()
        if number is not None and event is not None:
            search_table.add(connection, number, seq=seq, terms=terms, document=event[0])
    for session_id, seq in indexed.items():
        head_table.set_indexed(connection, session_id, seq=seq, store=store)


def drop_index(connection: apsw.Connection, *, store: str) -> None:
    """Forget every term and how far each session was indexed."""
    search_table.clear(connection)
    head_table.forget_indexed(connection, store=store)
