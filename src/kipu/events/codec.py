"""Events to bytes and back: a body is every field that is not envelope, as one line of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from kipu.errors import InvalidEventError
from kipu.events.boundary import GenericEvent
from kipu.events.event import ENVELOPE, SessionEvent
from kipu.events.registry import EVENT_CLASSES
from kipu.events.upcast import upcast

_OPTIONS = orjson.OPT_UTC_Z


@cache
def _body_names(kind: type[SessionEvent]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name not in ENVELOPE)


def body_fields(event: SessionEvent) -> dict[str, Any]:
    """Return the fields of `event` that are its body, without those that are None."""
    values = event.__dict__
    fields = {name: value for name in _body_names(type(event)) if (value := values.get(name)) is not None}
    extra = event.__pydantic_extra__
    if extra:
        fields.update(extra)
    return fields


def encode_body(event: SessionEvent) -> bytes:
    """Return the body of a normalised event.

    Raises:
        InvalidEventError: it holds something that normalisation should have changed.
    """
    return encode_fields(event.event_type, body_fields(event))


def encode_fields(event_type: str, fields: Mapping[str, Any]) -> bytes:
    """Return the body of a normalised event whose `body_fields` are these. Raises: InvalidEventError."""
    try:
        return orjson.dumps(fields, default=_plain, option=_OPTIONS)
    except TypeError as error:
        raise InvalidEventError(event_type=event_type, reason=str(error)) from error


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    raise TypeError(f"{type(value).__name__} does not serialise")


def decode(envelope: Mapping[str, Any], body: bytes) -> SessionEvent:
    """Return the event of a stored envelope and body; unknown types become `GenericEvent` with every field (B29).

    Raises:
        InvalidEventError: the body is not an object, or a known type's fields have wrong types (B15).
    """
    try:
        fields = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise InvalidEventError(
            event_type=envelope.get("event_type"), reason=f"its body is not JSON: {error}"
        ) from error
    if not isinstance(fields, dict):
        raise InvalidEventError(event_type=envelope.get("event_type"), reason="its body is not an object")
    return event_from_fields({**fields, **envelope})


def event_from_fields(fields: Mapping[str, Any]) -> SessionEvent:
    """Return the event that has these fields, envelope and body together.

    Raises:
        InvalidEventError: there is no event_type, or a known type's fields have wrong types (B15).
    """
    event_type = fields.get("event_type")
    if not isinstance(event_type, str) or not event_type:
        raise InvalidEventError(event_type=event_type, reason="event_type is missing or not text")
    cls = EVENT_CLASSES.get(event_type, GenericEvent)
    version = fields.get("v", 1)
    if isinstance(version, int) and version < cls.VERSION:
        fields = {**upcast(event_type, dict(fields), version=version, current=cls.VERSION), "v": cls.VERSION}
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        raise InvalidEventError(event_type=event_type, reason=_first_reason(error)) from error


def generic_event(envelope: Mapping[str, Any], body: bytes, *, reason: str) -> GenericEvent:
    """Return what can be kept of an event that does not validate: its envelope and, where it is an object, its fields."""
    try:
        fields = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError):
        fields = {"raw": body.decode("utf-8", "replace")}
    if not isinstance(fields, dict):
        fields = {"raw": fields}
    kept = {name: value for name, value in fields.items() if name not in ("normalised", *ENVELOPE)}
    return GenericEvent.model_validate({**kept, "unreadable": reason, **envelope})


def _first_reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"]) or "event"
    return f"{where}: {first['msg']}"
