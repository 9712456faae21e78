"""An event as one value: the number of its commit, its envelope as JSON with a checksum over all, a line break, and the body as it came."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from kipu.errors import InputError
from kipu.ports.store import Record, StoredEvent
from kipu.stores.event_row import event_of, row_of

MOST_BYTES = 500 * 1024 * 1024  # the server takes values up to 512 MB
NO_COMMIT = b"0 "  # of events that were taken in or came back: they are no news


class ReadEvent(NamedTuple):
    """What stands under a number: the event, or None where it does not match its checksum, and the number of its commit."""

    seq: int
    commit: int
    event: StoredEvent | None


def value_of(session_id: str, record: Record, *, seq: int) -> bytes:
    """Return the value of an event, but for the number of its commit, which the server gives. Raises: InputError: too large."""
    if len(record.body) > MOST_BYTES:
        raise InputError(reason=f"an event of {len(record.body)} bytes: this store keeps up to {MOST_BYTES}")
    return orjson.dumps(row_of(session_id, record, seq=seq)[:-1]) + b"\n" + record.body


def read_value(session_id: str, value: bytes, *, seq: int) -> ReadEvent:
    """Return what a value says; of one that is no event, no event."""
    commit, _, rest = value.partition(b" ")
    envelope, _, body = rest.partition(b"\n")
    try:
        row = orjson.loads(envelope)
        event = event_of(session_id, (*row, body))
        number = int(commit)
    except (TypeError, ValueError):
        return ReadEvent(seq, 0, None)
    return ReadEvent(seq, number, event if event is not None and event.seq == seq else None)
