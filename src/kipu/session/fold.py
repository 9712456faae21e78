"""The fold: a session's state is what its events make of it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kipu.events.event import SessionEvent, utc_text
from kipu.ports.head import Head, apply_patch, head_from_json
from kipu.session.patch import patch_for

Row = dict[str, Any]


def fold_event(row: Row, event: SessionEvent, *, tokens: int = 0) -> Row:
    """Return the head row after one more stored event. Total: every event, also of unknown types, has a next state."""
    moment = utc_text(event.timestamp) if event.timestamp else ""
    return apply_patch(row, patch_for([event], [moment]), first_seq=event.seq, timestamps=[moment], tokens=tokens)


def fold(events: Iterable[SessionEvent], *, session_id: str = "") -> Head:
    """Return the head that these events make, one at a time from nothing."""
    row: Row = {"session_id": session_id}
    for event in events:
        row["session_id"] = row["session_id"] or event.session_id
        row = fold_event(row, event)
    return head_from_json(row)
