"""From the fields of a line to an event that can be stored: nothing of it is lost, and nothing of it is trusted."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from kipu.errors import InvalidEventError
from kipu.events import ids
from kipu.events.boundary import MetadataChangedEvent, NoteEvent, SessionInitEvent
from kipu.events.codec import body_fields, encode_body, event_from_fields
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import ENVELOPE, SessionEvent, utc_text
from kipu.events.normalise import Change, normalise, note_changes
from kipu.interop.event_line import INLINE_BLOBS, blob_digests, is_digest
from kipu.manager.big_values import move_media, move_result
from kipu.manager.redacting import redact_arrival
from kipu.manager.writer import EventWriter
from kipu.ports.store import Record

if TYPE_CHECKING:
    from kipu.security.redaction.redactor import Redactor

RAW_NOTE = "kipu.import.raw"
_LONGEST_NAME = 200
# What a fork may inherit: where its parent's anchors stood. Anything else in there would set the head as it likes.
_ANCHORS = ("instruction_seq", "compaction_seq", "rewind_seq", "window_seq", "consolidated_seq")


@dataclass(frozen=True, slots=True)
class Incoming:
    """An event that is ready to be appended, and the blobs it needs."""

    event: SessionEvent
    record: Record
    blobs: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Return about how many bytes it holds."""
        return len(self.record.body) + sum(map(len, self.blobs.values()))


class EventMaker:
    """Make the events of one source session. Times and ids that are missing come from what stands before, always the same."""

    def __init__(self, writer: EventWriter, *, source_id: str, first_time: str) -> None:
        self._writer = writer
        self._source_id = source_id
        self._unix_ms = 0  # of the last time that a line gave: ids must not depend on when a file was touched
        self.last_time = first_time

    def event(self, fields: Mapping[str, Any], *, place: int) -> Incoming:
        """Return the event of a line.

        Raises:
            InvalidEventError: it is none, or storing it would change more than a value; its text is to be kept instead.
        """
        given = {name: value for name, value in fields.items() if name not in ENVELOPE and name != INLINE_BLOBS}
        body, changes = normalise(given)
        event_type = fields.get("event_type")
        if not isinstance(event_type, str) or not _is_name(event_type):
            raise InvalidEventError(event_type=event_type, reason="event_type is missing or not text")
        if any(change.kind == "depth" for change in changes):
            raise InvalidEventError(event_type=event_type, reason="it is nested too deeply")
        envelope = self._envelope(fields, changes, place=place)
        if changes:
            before = body.get("normalised")
            body = {**body, "normalised": [*(before if isinstance(before, list) else ()), *note_changes(changes)]}
        event = event_from_fields({**body, **envelope})
        _check_own_names(event)
        self.last_time = envelope["timestamp"]
        return self._incoming(event, body, blobs=_inline_blobs(fields), v=envelope["v"])

    def made(self, event: SessionEvent, *, place: int, chance: str = "") -> Incoming:
        """Return an event that the import itself adds at this place."""
        event_id = event.event_id or self._id(f"{place}/{event.event_type}/{chance}")
        stamps = {"event_id": event_id, "timestamp": datetime.fromisoformat(self.last_time)}
        event = event.model_copy(update={name: value for name, value in stamps.items() if not getattr(event, name)})
        return self._incoming(event, None, blobs={})

    def note(self, text: str, *, reason: str, offset: int, place: int) -> Incoming:
        """Return the note that keeps a line's text."""
        note = NoteEvent(kind=RAW_NOTE, data={"text": text, "reason": reason[:_LONGEST_NAME], "offset": offset})
        return self.made(note, place=place, chance=text)

    def beginning(self, incoming: Incoming, *, changes: Mapping[str, Any], base_seq: int) -> Incoming:
        """Return a `session_init` with these fields changed and its anchors checked, which lie up to `base_seq`."""
        body = orjson.loads(incoming.record.body)
        body.update(changes)
        body = {name: value for name, value in body.items() if value is not None}
        if "inherited" in body:
            body["inherited"] = _anchors(body["inherited"], until=base_seq)
        names = ("event_id", "event_type", "timestamp", "turn_id", "trace_id", "principal", "v")
        envelope = {name: getattr(incoming.record, name) for name in names}
        event = event_from_fields({**body, **envelope})
        return self._incoming(event, body, blobs=incoming.blobs, v=incoming.record.v)

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _envelope(self, fields: Mapping[str, Any], changes: list[Change], *, place: int) -> dict[str, Any]:
        envelope: dict[str, Any] = {"event_type": fields["event_type"], "timestamp": self._time(fields, changes)}
        event_id = fields.get("event_id")
        if isinstance(event_id, str) and _is_name(event_id):
            envelope["event_id"] = event_id
        else:
            plain = orjson.dumps(normalise(dict(fields))[0], option=orjson.OPT_SORT_KEYS).decode()
            envelope["event_id"] = self._id(f"{place}/{plain}")
            if event_id is not None:
                changes.append(Change("/event_id", "envelope", ascii(event_id)[:_LONGEST_NAME]))
        for name in ("turn_id", "trace_id", "principal"):
            value = fields.get(name)
            if isinstance(value, str) and _is_name(value):
                envelope[name] = value
            elif value is not None:
                changes.append(Change(f"/{name}", "envelope", ascii(value)[:_LONGEST_NAME]))
        version = fields.get("v")
        is_version = isinstance(version, int) and not isinstance(version, bool) and 0 < version < 1 << 31
        envelope["v"] = version if is_version else 1
        return envelope

    def _time(self, fields: Mapping[str, Any], changes: list[Change]) -> str:
        given = fields.get("timestamp")
        moment = _moment(given)
        if moment is None:
            changes.append(Change("/timestamp", "time", ascii(given)[:_LONGEST_NAME] if given is not None else ""))
            return self.last_time
        if moment.tzinfo is None:
            changes.append(Change("/timestamp", "zone", ascii(given)[:_LONGEST_NAME]))
            moment = moment.replace(tzinfo=UTC)
        self._unix_ms = max(0, int(moment.timestamp() * 1000))
        return utc_text(moment)

    def _id(self, chance: str) -> str:
        digest = hashlib.sha256(f"{self._source_id}\n{chance}".encode("utf-8", "replace")).digest()
        return ids.event_id(self._unix_ms, digest)

    def _incoming(
        self, event: SessionEvent, body: dict[str, Any] | None, *, blobs: Mapping[str, bytes], v: int | None = None
    ) -> Incoming:
        redactor = self._writer.redactor
        if redactor is not None:
            redacted = redact_arrival(redactor, event, fields=body_fields(event) if body is None else body, blobs=blobs)
            event, body, blobs = redacted or (event, body, blobs)
        moved, more = _without_big_values(event)
        plain = encode_body(moved) if body is None or moved is not event else orjson.dumps(body)
        record = Record(
            event_id=event.event_id,
            event_type=event.event_type,
            timestamp=utc_text(event.timestamp or datetime.fromisoformat(self.last_time)),
            body=plain,
            tokens=self._writer.tokens_of(moved),
            turn_id=event.turn_id,
            trace_id=event.trace_id,
            principal=event.principal,
            v=event.v if v is None else v,
        )
        return Incoming(moved, record, {**blobs, **more})


def with_blobs(incoming: Incoming, blobs: Mapping[str, bytes], *, redactor: Redactor | None = None) -> Incoming:
    """Return the event with more blobs to keep for it, without the secrets that a `redactor` finds in them."""
    if not blobs:
        return incoming
    if redactor is not None:
        redacted = redact_arrival(redactor, incoming.event, fields=orjson.loads(incoming.record.body), blobs=blobs)
        if redacted is not None:
            event, fields, blobs = redacted
            record = incoming.record._replace(body=orjson.dumps(fields))
            incoming = replace(incoming, event=event, record=record)
    return replace(incoming, blobs={**blobs, **incoming.blobs})


def referred(incoming: Incoming) -> list[str]:
    """Return the digests of the blobs that an event refers to and does not bring."""
    body = orjson.loads(incoming.record.body)
    return [digest for digest in dict.fromkeys(blob_digests(body)) if digest not in incoming.blobs]


def _without_big_values(event: SessionEvent) -> tuple[SessionEvent, dict[str, bytes]]:
    if isinstance(event, ToolResultEvent):
        moved = move_result(event)
        return (event, {}) if moved is None else (moved[0], {_digest(moved[1]): moved[1]})
    if isinstance(event, UserMessageEvent | AgentMessageEvent) and not isinstance(event.content, str):
        content, blobs = move_media(event.content)
        if blobs:
            return event.model_copy(update={"content": content}), {_digest(data): data for data in blobs}
    return event, {}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _inline_blobs(fields: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the blobs that stand in a line and are what their digest says."""
    found: dict[str, bytes] = {}
    inline = fields.get(INLINE_BLOBS)
    for digest, text in inline.items() if isinstance(inline, dict) else ():
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
        if is_digest(digest) and _digest(data) == digest:
            found[digest] = data
    return found


def _moment(given: Any) -> datetime | None:
    """Return the time that a line says: ISO 8601 text, or seconds or milliseconds since 1970."""
    try:
        if isinstance(given, str):
            moment = datetime.fromisoformat(given.strip())
        elif isinstance(given, int | float) and not isinstance(given, bool):
            moment = datetime.fromtimestamp(given / 1000 if given > 100_000_000_000 else given, UTC)
        else:
            return None
        return moment if 1000 <= moment.year <= 9998 else None
    except (ValueError, OverflowError, OSError):
        return None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable()


def _anchors(given: Any, *, until: int) -> dict[str, Any]:
    """Return what of this a fork of events up to `until` can have inherited."""
    given = given if isinstance(given, dict) else {}
    kept: dict[str, Any] = {
        name: given[name] for name in _ANCHORS if type(given.get(name)) is int and 0 <= given[name] <= until
    }
    pins = given.get("pins")
    if isinstance(pins, list) and all(type(pin) is int for pin in pins):
        kept["pins"] = [pin for pin in pins if pin <= until]
    if isinstance(given.get("first_text"), str):
        kept["first_text"] = given["first_text"]
    return kept


def _check_own_names(event: SessionEvent) -> None:
    """Refuse a title, tags or pin of the wrong kind: they would stand in the head, where everybody relies on them."""
    given: Mapping[str, Any] = {}
    if isinstance(event, MetadataChangedEvent):
        given = event.set
    elif isinstance(event, SessionInitEvent):
        given = event.metadata
    tags = given.get("tags", [])
    if not isinstance(given.get("title", ""), str | None) or not isinstance(given.get("pinned", False), bool):
        raise InvalidEventError(event_type=event.event_type, reason="title or pinned has a wrong type")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidEventError(event_type=event.event_type, reason="tags are not a list of texts")
