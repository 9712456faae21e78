"""An event as the row of a table, with a checksum over all that it says: what the SQL stores share."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from kipu.ports.store import Record, StoredEvent

FIELDS = (
    "seq",
    "event_id",
    "event_type",
    "timestamp",
    "tokens",
    "turn_id",
    "trace_id",
    "principal",
    "v",
    "crc",
    "body",
)
Envelope = tuple[Any, ...]


def row_of(session_id: str, record: Record, *, seq: int) -> Envelope:
    """Return the values of `FIELDS` for a record."""
    event_id, event_type, timestamp, body, tokens, turn_id, trace_id, principal, v, _ = record
    envelope = (seq, event_id, event_type, timestamp, tokens, turn_id, trace_id, principal, v)
    return (*envelope, _checksum(session_id, envelope, body), body)


def event_of(session_id: str, row: Sequence[Any]) -> StoredEvent | None:
    """Return the event of a row of `FIELDS`, or None when it does not match its checksum."""
    *envelope, crc, body = row
    if type(body) is not bytes or crc != _checksum(session_id, envelope, body):
        return None
    seq, event_id, event_type, timestamp, tokens, turn_id, trace_id, principal, v = envelope
    record = Record(event_id, event_type, timestamp, body, tokens, turn_id, trace_id, principal, v)
    return StoredEvent(seq, session_id, record)


def _checksum(session_id: str, envelope: Sequence[Any], body: bytes) -> int:
    seq, event_id, event_type, timestamp, tokens, turn_id, trace_id, principal, v = envelope
    text = (
        f"{session_id}\n{seq}\n{event_id}\n{event_type}\n{timestamp}\n{tokens}\n{turn_id}\n{trace_id}\n{principal}\n{v}"
    )
    return zlib.crc32(body, zlib.crc32(text.encode()))
