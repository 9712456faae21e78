"""Letting go of a session's events and taking them back: the rules of the contract, as pure code over one head row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kipu.errors import ConflictError, LeaseLostError, SessionArchivedError
from kipu.ports.store import Lease, StoredEvent
from kipu.stores.leasing import holds

Row = Mapping[str, Any]


def refuse_archived(row: Row, *, after: int, until: int | None, limit: int, backwards: bool) -> None:
    """Raise SessionArchivedError where a page of these bounds would hold an event that was let go of."""
    gone: int = row.get("offloaded_seq", 0)
    last: int = row.get("last_seq", 0)
    high = last if until is None else min(until, last)
    low = max(after, row.get("base_seq", 0))
    if backwards:
        low = max(low, high - limit)
    if low < min(high, gone):
        raise SessionArchivedError(session_id=row["session_id"], until=gone)


def is_whole(events: Sequence[StoredEvent], *, after: int, limit: int, backwards: bool) -> bool:
    """Return True where a page has no hole, so that nothing of it can have been let go of, whatever the head says."""
    if not events:
        return False
    first, last = events[0].seq, events[-1].seq
    if abs(last - first) != len(events) - 1:
        return False
    return (len(events) == limit or last == after + 1) if backwards else first == after + 1


def let_go(row: Row, lease: Lease, *, until: int, archive: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a session without its events; of one that has let go already, as it is.

    Raises: LeaseLostError, ConflictError.
    """
    _require_lease(row, lease)
    if row.get("offloaded_seq") == until:  # a kill may have come before the last of it was removed
        return dict(row)
    if until != row["last_seq"] or row.get("offloaded_seq"):
        raise ConflictError(session_id=row["session_id"], expected=until, actual=row["last_seq"])
    return {**row, "offloaded_seq": until, "archive": dict(archive)}


def check_reload(row: Row, lease: Lease, *, events: Sequence[StoredEvent]) -> None:
    """Refuse events that were not let go of. Raises: LeaseLostError, ConflictError."""
    _require_lease(row, lease)
    first, last = row.get("base_seq", 0) + 1, row.get("offloaded_seq", 0)
    for event in events:
        if not first <= event.seq <= last or event.session_id != row["session_id"]:
            raise ConflictError(session_id=row["session_id"], expected=last, actual=event.seq)


def taken_back(row: Row, *, archive: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the row of a session that has its events again."""
    return {**row, "offloaded_seq": 0, "archive": None if archive is None else dict(archive)}


def _require_lease(row: Row, lease: Lease) -> None:
    if not holds(row, lease):
        raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=row.get("lease_token", 0))
