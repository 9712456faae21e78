"""What changes beside the log, each as one function inside the writer's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from kipu.errors import ConflictError, LeaseLostError, SessionNotFoundError
from kipu.ports.owner import Liveness
from kipu.ports.store import IndexEntry, Lease, Record
from kipu.stores.admission import check_adopted
from kipu.stores.leasing import claimed, holds, released, renewed
from kipu.stores.sqlite import event_table
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


def adopt(heads: Heads, session_id: str, *, records: Sequence[Record], after: int, lease: Lease) -> int:
    """Take in shared events, out of sight. Raises: SessionNotFoundError, LeaseLostError, ConflictError."""
    row = require(heads, session_id)
    if not holds(row.data, lease):
        raise LeaseLostError(session_id=session_id, token=lease.token, current=row.data.get("lease_token", 0))
    end, _ = event_table.adopted(heads.connection, row.number)
    if not records:
        return end
    check_adopted(row.data, len(records), after=after, end=end)
    new = records[end - after :]
    event_table.adopt(heads.connection, row.number, session_id=session_id, first_seq=end + 1, records=new)
    return end + len(new)


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
        if number is not None and (event is not None or _is_away(heads, session_id, seq)):
            document = event[0] if event is not None else event_table.old_place(number, seq)
            search_table.add(connection, number, seq=seq, terms=terms, document=document)
    for session_id, seq in indexed.items():
        heads.set_indexed(session_id, seq=seq)


def _is_away(heads: Heads, session_id: str, seq: int) -> bool:
    """Return whether the event is in the session's archive: it is found all the same."""
    row = heads.load(session_id)
    return row is not None and seq <= row.data.get("offloaded_seq", 0)


def drop_index(heads: Heads) -> None:
    """Forget every term and how far each session was indexed."""
    search_table.clear(heads.connection)
    heads.forget_indexed()
