"""The fold: a session's state is what its events make of it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kipu.events.event import SessionEvent, utc_text
from kipu.ports.head import Head, HeadPatch, apply_patch, head_from_json
from kipu.session.patch import patch_for

Row = dict[str, Any]
_COUNTED = ("session_id", "base_seq", "last_seq", "event_count", "token_count", "last_event_at", "indexed_seq")


def fold_event(row: Row, event: SessionEvent, *, tokens: int = 0) -> Row:
    """Return the head row after one more stored event. Total: every event, also of unknown types, has a next state."""
    moment = utc_text(event.timestamp) if event.timestamp else ""
    patch = patch_for([event], [moment])
    if event.event_type == "session_init" and row.get("event_count"):
        row, patch = _begun_again(row, patch)
    return apply_patch(row, patch, first_seq=event.seq, timestamps=[moment], tokens=tokens)


def _begun_again(row: Row, patch: HeadPatch) -> tuple[Row, HeadPatch]:
    """Return what a fork's own beginning makes of the events before it, which it took over from its parents."""
    kept = {name: row[name] for name in _COUNTED if name in row}
    own = {name: value for name, value in patch.set.items() if name not in {"base_seq", "forked_from"}}
    return kept, patch._replace(set=own)


def fold(events: Iterable[SessionEvent], *, session_id: str = "") -> Head:
    """Return the head that these events make, one at a time from nothing."""
    row: Row = {"session_id": session_id}
    for event in events:
        row["session_id"] = row["session_id"] or event.session_id
        row = fold_event(row, event)
    return head_from_json(row)
