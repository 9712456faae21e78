"""From an event that a program made to the record that a store keeps: checked, normalised, stamped, counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kipu.context.tokens import event_tokens
from kipu.errors import InvalidEventError
from kipu.events import ids
from kipu.events.boundary import GenericEvent
from kipu.events.codec import body_fields, encode_fields, event_from_fields
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import ENVELOPE_FIELDS, SessionEvent, TimeTexts, utc_text, with_fields
from kipu.events.normalise import normalise, note_changes
from kipu.events.registry import EVENT_CLASSES
from kipu.manager.big_values import move_media, move_result
from kipu.manager.redacting import RedactorSource, notes_of, redact_body
from kipu.ports.clock import Clock, Entropy
from kipu.ports.store import EventStore, Record
from kipu.ports.tokens import TokenCounter

if TYPE_CHECKING:
    from kipu.security.redaction.redactor import Redactor

# A call that was made must be on the medium before its effect is: these are never left in a write buffer (B53).
URGENT_TYPES = frozenset(
    {
        "tool_call",
        "tool_started",
        "tool_result",
        "approval_request",
        "approval_decision",
        "turn_parked",
        "stop_requested",
    }
)


class Prepared(NamedTuple):
    """An event as it will be, but for its seq, its record, and the blobs that must be durable before it."""

    event: SessionEvent
    record: Record
    blobs: Sequence[bytes] = ()


class EventWriter:
    """Prepare events of any session of one store."""

    def __init__(
        self,
        store: EventStore,
        *,
        clock: Clock,
        entropy: Entropy,
        counter: TokenCounter,
        redactor: RedactorSource = None,
    ) -> None:
        self._store = store
        self._redactor_source = redactor
        self._clock = clock
        self._entropy = entropy
        self._counter = counter
        self._times = TimeTexts()

    @property
    def redactor(self) -> Redactor | None:
        """Return what takes secrets out of all that is written, None where nothing does; made when it is first needed."""
        source = self._redactor_source
        if callable(source):
            self._redactor_source = source = source()
        return source

    async def prepare(
        self, session_id: str, event: SessionEvent, *, turn_id: str | None = None, principal: str | None = None
    ) -> Prepared:
        """Return the event ready to be appended; the blobs it needs are durable before (B16, C2).

        Raises:
            InvalidEventError: wrong types or names, another session's event, or one that is stored already.
        """
        prepared = self.ready(session_id, event, turn_id=turn_id, principal=principal)
        for data in prepared.blobs:
            await self._store.put_blob(session_id, data)
        return prepared

    def ready(
        self, session_id: str, event: SessionEvent, *, turn_id: str | None = None, principal: str | None = None
    ) -> Prepared:
        """Return what `prepare` returns; storing its `blobs` first is left to the caller."""
        event = _known(event)
        _check(session_id, event)
        event, fields, changes = _normalised(event, self.redactor)
        stamps: dict[str, Any] = {"session_id": session_id, "v": type(event).VERSION}
        if changes:
            stamps["normalised"] = [*(event.normalised or ()), *changes]
        if event.turn_id is None and turn_id is not None:
            stamps["turn_id"] = turn_id
        if event.principal is None and principal is not None:
            stamps["principal"] = principal
        stamped, moment = self._stamped(event, stamps)
        event, blobs = _without_big_values(stamped)
        if changes or event is not stamped:
            fields = body_fields(event)
        return Prepared(event, self._record(event, moment, encode_fields(event.event_type, fields)), blobs)

    def _stamped(self, event: SessionEvent, stamps: dict[str, Any]) -> tuple[SessionEvent, str]:
        """Return the event with id and time, and its time as text."""
        now_us = self._clock.now_us()
        if not event.event_id:
            stamps["event_id"] = ids.event_id(now_us // 1000, self._entropy.random_bytes(10))
        moment = event.timestamp
        if moment is None:
            stamps["timestamp"], text = self._times.at(now_us)
        else:
            text = utc_text(moment)
        return with_fields(event, stamps), text

    def redacted(self, value: Any, *, path: str) -> tuple[Any, list[dict[str, Any]]]:
        """Return a tool's value without secrets, and what its event's `normalised` has to say of that.

        For what goes into a blob before its event is made. Without a redactor the value comes back as it is.
        """
        redactor = self.redactor
        if redactor is None:
            return value, []
        found = redactor.redact(normalise(value)[0], path=path)
        return (found.value, [finding.to_json() for finding in found.findings]) if found.findings else (value, [])

    def tokens_of(self, event: SessionEvent) -> int:
        """Return what an event costs in a window, as this manager counts."""
        return event_tokens(event, self._counter)

    def _record(self, event: SessionEvent, moment: str, body: bytes) -> Record:
        return Record(
            event.event_id,
            event.event_type,
            moment,
            body,
            event_tokens(event, self._counter),
            event.turn_id,
            event.trace_id,
            event.principal,
            event.v,
            event.event_type in URGENT_TYPES,
        )


def _without_big_values(event: SessionEvent) -> tuple[SessionEvent, Sequence[bytes]]:
    if isinstance(event, ToolResultEvent):
        moved = move_result(event)
        if moved is not None:
            return moved[0], (moved[1],)
    elif isinstance(event, UserMessageEvent | AgentMessageEvent) and not isinstance(event.content, str):
        content, blobs = move_media(event.content)
        if blobs:
            return with_fields(event, {"content": content}), blobs
    return event, ()


def _known(event: SessionEvent) -> SessionEvent:
    """Return the event as its own class, so that a plain `SessionEvent(event_type=…)` is validated like the others (B15)."""
    kind = EVENT_CLASSES.get(event.event_type)
    if type(event) is kind or (kind is None and isinstance(event, GenericEvent)):
        return event
    return event_from_fields({name: value for name, value in event if value is not None})


def _check(session_id: str, event: SessionEvent) -> None:
    if event.seq:
        reason = f"it is stored already, as number {event.seq}; make a new one to add it again"
        raise InvalidEventError(event_type=event.event_type, reason=reason)
    if event.session_id not in ("", session_id):
        reason = f"it says session {event.session_id!r}, not {session_id!r}"
        raise InvalidEventError(event_type=event.event_type, reason=reason)
    if event.model_extra and not isinstance(event, GenericEvent):
        names = ", ".join(sorted(event.model_extra))
        reason = f"it has no field {names}; put data of your own into metadata"
        raise InvalidEventError(event_type=event.event_type, reason=reason)


def _normalised(
    event: SessionEvent, redactor: Redactor | None
) -> tuple[SessionEvent, dict[str, Any], list[dict[str, Any]]]:
    """Return the event with storable values and without secrets, its body, and what was changed.

    Memory then holds what every reader will get.
    """
    fields = body_fields(event)
    plain, changes = normalise(fields)
    notes = note_changes(changes)
    if redactor is not None:
        redacted, findings = redact_body(redactor, plain, event_type=event.event_type)
        notes = notes_of(findings, notes, redactor=redactor) if notes or findings else notes
        plain = redacted
    if plain is fields:
        return event, fields, []
    envelope = {name: getattr(event, name) for name in ENVELOPE_FIELDS}
    event = event_from_fields({**plain, **envelope})
    return event, body_fields(event), notes
