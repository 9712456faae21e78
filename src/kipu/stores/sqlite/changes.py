"""What changes beside the log, each as one function inside the writer's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from kipu.errors import ConflictError, LeaseLostError, SessionNotFoundError
from kipu.ports.owner import Liveness
from kipu.ports.store import IndexEntry, Lease
from kipu.stores.leasing import claimed, released, renewed
from kipu.stores.tables import head_table, key_tables, search_table
from kipu.stores.tables.heads import Heads


def require(heads: Heads, session_id: str) -> head_table.HeadRow:
    """Return the session's row. Raises: SessionNotFoundError."""
    row = heads.load(session_id)
    if row is None:
        raise SessionNotFoundError(session_id=session_id)
    return row


def claim(heads: Heads, session_id: str, *, owner: str, ttl_s: float, now_us: int, liveness: Liveness) -> Lease | None:
    """Give the lease to `owner`, or return None while another's is live."""
    row = require(heads, session_id)
    outcome = claimed(row.data, owner=owner, ttl_s=ttl_s, now_us=now_us, liveness=liveness)
    if outcome is None:
        return None
    after, lease = outcome
    heads.update(row, after=after)
    return lease


def renew(heads: Heads, lease: Lease, *, now_us: int) -> Lease:
    """Move the lease's expiry. Raises: LeaseLostError."""
    row = heads.load(lease.session_id)
    if row is None:
        raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=None)
    after, fresh = renewed(row.data, lease, now_us=now_us)
    heads.update(row, after=after)
    return fresh


def release(heads: Heads, lease: Lease, *, expected_seq: int | None) -> bool:
    """Take the lease back, unless something arrived since."""
    row = heads.load(lease.session_id)
    if row is None:
        return True
    outcome = released(row.data, lease, expected_seq=expected_seq)
    if isinstance(outcome, bool):
        return outcome
    heads.update(row, after=outcome)
    return True


def bind(heads: Heads, key: str, *, session_id: str, expected: str | None) -> None:
    """Make the key lead to the session. Raises: ConflictError, SessionNotFoundError."""
    row = require(heads, session_id)
    actual = key_tables.resolve(heads.connection, key)
    if actual != expected:
        raise ConflictError(session_id=key, expected=expected, actual=actual)
    key_tables.bind(heads.connection, key, number=row.number)


def put_blob(heads: Heads, session_id: str, *, data: bytes) -> str:
    """Keep the bytes under their digest."""
    row = require(heads, session_id)
    digest = hashlib.sha256(data).hexdigest()
    heads.connection.execute(
        "INSERT OR IGNORE INTO blobs(session, digest, data) VALUES (?, ?, ?)", (row.number, digest, data)
    )
    return digest


def index(heads: Heads, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
    """Take in terms of events that are there, and move `indexed_seq`."""
    connection = heads.connection
    numbers: dict[str, int | None] = {}
    for session_id, seq, terms in ((entry.session_id, entry.seq, entry.terms) for entry in entries):
        if session_id not in numbers:
            numbers[session_id] = head_table.number_of(connection, session_id)
        number = numbers[session_id]
        event = connection.execute("SELECT id FROM events WHERE session = ? AND seq = ?", (number, seq)).fetchone()
        if number is not None and event is not None:
            search_table.add(connection, number, seq=seq, terms=terms, document=event[0])
    for session_id, seq in indexed.items():
        heads.set_indexed(session_id, seq=seq)


def drop_index(heads: Heads) -> None:
    """Forget every term and how far each session was indexed."""
    search_table.clear(heads.connection)
    heads.forget_indexed()
