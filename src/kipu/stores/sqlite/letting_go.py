"""A session's events out of the database and back into it, each step inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kipu.ports.store import Lease, StoredEvent
from kipu.stores.offloading import check_reload, let_go, taken_back
from kipu.stores.sqlite import event_table
from kipu.stores.sqlite.changes import require
from kipu.stores.tables.heads import Heads


def offload(
    heads: Heads, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
) -> None:
    """Remove the session's events and these blobs. Raises: SessionNotFoundError, LeaseLostError, ConflictError."""
    row = require(heads, session_id)
    heads.update(row, after=let_go(row.data, lease, until=until, archive=archive))
    event_table.remove_session(heads.connection, row.number)
    for digest in blobs:
        heads.connection.execute("DELETE FROM blobs WHERE session = ? AND digest = ?", (row.number, digest))


def reload(
    heads: Heads,
    session_id: str,
    *,
    events: Sequence[StoredEvent],
    lease: Lease,
    complete: bool,
    archive: Mapping[str, Any] | None,
) -> None:
    """Take events in, out of sight, and with `complete` show them. Raises: SessionNotFoundError, LeaseLostError, ConflictError."""
    row = require(heads, session_id)
    check_reload(row.data, lease, events=events)
    event_table.bring_back(heads.connection, row.number, session_id=session_id, events=events)
    if complete:
        if row.data.get("offloaded_seq"):
            event_table.take_over(heads.connection, row.number)
        heads.update(row, after=taken_back(row.data, archive=archive))
