"""A record's body under seal, whole or the fields chosen, bound to its place in the session (EN-2, EN-3)."""

from __future__ import annotations

import binascii
from typing import Any

import orjson

from kipu.errors import SealBrokenError
from kipu.ports.cipher import SessionCipher
from kipu.ports.store import Record, StoredEvent
from kipu.stores.sealed_head import context_of, open_text, seal_text

_NAME = "$sealed"
_START, _END = b'{"$sealed":"', b'"}'
_WHOLE = _START + b"~"


def seal_record(record: Record, cipher: SessionCipher, *, fields: frozenset[str] | None = None) -> Record:
    """Return the record with its body sealed; with `fields`, those alone, and what stays clear cannot be changed."""
    if fields is not None:
        clear = _object(record.body)
        if clear is not None and _NAME not in clear:
            return _seal_fields(record, cipher, clear=clear, fields=fields)
    sealed = binascii.b2a_base64(cipher.seal(record.body, _context(record, b"")), newline=False)
    return _with_body(record, b"".join((_WHOLE, sealed, _END)))


def _with_body(record: Record, body: bytes) -> Record:
    event_id, event_type, timestamp, _, tokens, turn_id, trace_id, principal, v, urgent = record
    return Record(event_id, event_type, timestamp, body, tokens, turn_id, trace_id, principal, v, urgent)


def _seal_fields(record: Record, cipher: SessionCipher, *, clear: dict[str, Any], fields: frozenset[str]) -> Record:
    secret = {name: clear.pop(name) for name in tuple(clear) if name in fields}
    sealed = seal_text(cipher, orjson.dumps(secret), context=_context(record, _canonical(clear)))
    return record._replace(body=orjson.dumps({**clear, _NAME: sealed}))


def open_event(event: StoredEvent, cipher: SessionCipher) -> StoredEvent:
    """Return the event with its body as it was given, sealed whole or in part.

    Raises: SealBrokenError, naming the event; DataKeyMissingError.
    """
    record = event.record
    body = record.body
    try:
        if body.startswith(_WHOLE) and body.endswith(_END):
            return StoredEvent(event.seq, event.session_id, _open_whole(record, cipher, body[len(_WHOLE) : -len(_END)]))
        clear = _object(body)
        if clear is None or _NAME not in clear:
            raise SealBrokenError(store="", reason="", session_id=event.session_id, where="")
        sealed = clear.pop(_NAME)
        return StoredEvent(event.seq, event.session_id, _open_chosen(record, cipher, clear=clear, sealed=sealed))
    except (SealBrokenError, binascii.Error) as error:
        where = f"event {event.seq}"
        raise SealBrokenError(
            store="", reason=f"{where} of {event.session_id} is not as sealed", session_id=event.session_id, where=where
        ) from error


def _open_whole(record: Record, cipher: SessionCipher, sealed: bytes) -> Record:
    """Return the record whose whole body was sealed; all its chosen fields may have been all that was in it."""
    raw = binascii.a2b_base64(sealed)
    try:
        return _with_body(record, cipher.open(raw, _context(record, b"")))
    except SealBrokenError:
        return _with_body(record, cipher.open(raw, _context(record, _canonical({}))))


def _open_chosen(record: Record, cipher: SessionCipher, *, clear: dict[str, Any], sealed: Any) -> Record:
    secret = orjson.loads(open_text(cipher, sealed, context=_context(record, _canonical(clear))))
    return record._replace(body=orjson.dumps({**clear, **secret}))


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _canonical(clear: dict[str, Any]) -> bytes:
    return orjson.dumps(clear, option=orjson.OPT_SORT_KEYS)


def _context(record: Record, clear: bytes) -> bytes:
    """Return what an event's seal is bound to beside session and epoch: its id, its type, and what says who and when."""
    return context_of("event", *record[:3], record.v, record.turn_id, record.principal) + clear
