"""One event as one line of JSON, envelope and body flat (EV-1)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from kipu.events.event import ENVELOPE
from kipu.ports.store import StoredEvent

INLINE_BLOBS = "inline_blobs"
UNREADABLE_BODY = "unreadable_body"

# Legal inside JSON strings, but line ends to readers that split text (situation 9).
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def event_line(stored: StoredEvent, *, blobs: Mapping[str, bytes] | None = None) -> bytes:
    """Return the line of an event, its end included; `blobs` go with it as base64."""
    record = stored.record
    fields: dict[str, Any] = {
        "seq": stored.seq,
        "event_id": record.event_id,
        "event_type": record.event_type,
        "timestamp": record.timestamp,
        "session_id": stored.session_id,
    }
    optional = {"turn_id": record.turn_id, "trace_id": record.trace_id, "principal": record.principal}
    fields.update({name: value for name, value in optional.items() if value is not None})
    fields["v"] = record.v
    body = body_of(record.body)
    if body is None:
        fields[UNREADABLE_BODY] = base64.b64encode(record.body).decode("ascii")
    else:
        fields.update({name: value for name, value in body.items() if name not in ENVELOPE})
    if blobs:
        fields[INLINE_BLOBS] = {digest: base64.b64encode(data).decode("ascii") for digest, data in blobs.items()}
    line = orjson.dumps(fields)
    for raw, escape in _SEPARATORS:
        if raw in line:
            line = line.replace(raw, escape)
    return line + b"\n"


def body_of(body: bytes) -> dict[str, Any] | None:
    """Return the fields of a stored body, or None when it is not an object."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def blob_digests(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests of the blobs that an event's fields refer to."""
    for name in ("blob", "blobs", "content", "result"):
        yield from _digests(body.get(name))
    tools = body.get("tools")
    if isinstance(tools, str) and is_digest(tools):
        yield tools


def _digests(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _digests(item)
    elif isinstance(value, dict):
        for found in (value.get("digest"), value.get("blob")):
            if isinstance(found, str) and is_digest(found):
                yield found


def is_digest(text: str) -> bool:
    """Return True for a SHA-256 in lower-case hex, which also makes a safe file name."""
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)
