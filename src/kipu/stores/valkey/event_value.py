"""An event as one value: the number of its commit, its envelope as JSON with a checksum over all, a line break, and the body as it came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from kipu.errors import InputError
from kipu.ports.store import Record, StoredEvent
from kipu.stores.event_row import event_of, row_of

MOST_BYTES = 500 * 1024 * 1024  # the server takes values up to 512 MB
_AT_ONCE_BYTES = 32 * 1024 * 1024
NO_COMMIT = b"0 "  # of events that were taken in or came back: they are no news


def check_size(records: Sequence[Record]) -> None:
    """Raise InputError where a batch is larger than the server takes at once."""
    size = sum([len(record.body) for record in records])
    if size > MOST_BYTES:
        raise InputError(reason=f"a batch of {size} bytes: this store takes up to {MOST_BYTES} at once")


def in_batches(records: Sequence[Record]) -> list[int]:
    """Return where each of the parts ends that together are all of them, and each small enough to be sent at once."""
    ends, size = list[int](), 0
    for number, record in enumerate(records):
        if size and size + len(record.body) > _AT_ONCE_BYTES:
            ends.append(number)
            size = 0
        size += len(record.body)
    return [*ends, len(records)]


class ReadEvent(NamedTuple):
    """What stands under a number: the event, or None where it does not match its checksum, and the number of its commit."""

    seq: int
    commit: int
    event: StoredEvent | None


def value_of(session_id: str, record: Record, *, seq: int) -> bytes:
    """Return the value of an event, but for the number of its commit, which the server gives."""
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
