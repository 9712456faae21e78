"""Events to bytes and back, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kipu.errors import InvalidEventError
from kipu.events.boundary import GenericEvent
from kipu.events.codec import decode, encode_body, event_from_fields, generic_event
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import ENVELOPE_FIELDS, SessionEvent, utc_text, utc_text_us
from kipu.events.registry import EVENT_CLASSES
from kipu.events.upcast import upcast

ENVELOPE: dict[str, Any] = {
    "seq": 3,
    "event_id": "018f0000-0000-7000-8000-000000000000",
    "timestamp": "2026-01-02T03:04:05.000006Z",
    "session_id": "sess_a",
    "v": 1,
}


def read_back(event: SessionEvent) -> SessionEvent:
    envelope = {name: getattr(event, name) for name in ENVELOPE_FIELDS}
    return decode(envelope, encode_body(event))


def test_tool_events_round_trip_with_their_fields() -> None:
    """Calls, results and messages come back as they were, tool fields included (A23, B1, B11, B12, B13, B14, EV-1)."""
    events = [
        UserMessageEvent(content="hi", metadata={"user_id": "u1"}, **ENVELOPE),
        AgentMessageEvent(content="", reasoning="because", metadata={"a": [1, None]}, **ENVELOPE),
        ToolCallEvent(tool_name="run", tool_input={"code": "x\n"}, tool_call_id="call_1", **ENVELOPE),
        ToolResultEvent(tool_call_id="call_1", result={"out": None}, is_error=True, error_info="exit 1", **ENVELOPE),
    ]
    assert [read_back(event) for event in events] == events


def test_every_known_type_has_its_own_class() -> None:
    """The set of types is closed, and each class accepts its own type only (B15, EV-6)."""
    for event_type, cls in EVENT_CLASSES.items():
        assert cls.model_fields["event_type"].default == event_type
        with pytest.raises(ValueError, match="event_type"):
            cls.model_validate({"event_type": "something_else"})


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"event_type": "user_message"}, "content"),
        ({"event_type": "user_message", "content": 3}, "content"),
        ({"event_type": "tool_result", "tool_call_id": "a", "is_error": "yes"}, "is_error"),
        ({"event_type": "tool_call", "tool_name": "t", "tool_call_id": "a", "tool_input": [1]}, "tool_input"),
        ({"event_type": "turn_started", "turn_id": "t", "consumes": ["7"]}, "consumes"),
        ({"event_type": "status_changed", "status": "gone"}, "status"),
        ({"event_type": "user_message", "content": "x", "timestamp": "2026-01-02T03:04:05"}, "timestamp"),
    ],
)
def test_wrong_types_are_refused_and_named(fields: dict[str, Any], where: str) -> None:
    """A known type with a missing or wrong field is refused, and the message names the field (B15, B18, EV-4, EV-6)."""
    with pytest.raises(InvalidEventError, match=where):
        event_from_fields(fields)


@pytest.mark.parametrize("event_type", [None, "", 7, ["user_message"]])
def test_an_event_needs_a_type(event_type: object) -> None:
    """Without an event_type there is no event (B15)."""
    with pytest.raises(InvalidEventError, match="event_type"):
        event_from_fields({"event_type": event_type, "content": "x"})


def test_unknown_types_keep_every_field() -> None:
    """An event of an unknown type comes back with all its fields, whatever they are called (B9, B29, EV-7)."""
    body = b'{"c":1,"batch":{"x":[null]},"head":"h","content":5}'
    event = decode({**ENVELOPE, "event_type": "from_the_future"}, body)
    assert isinstance(event, GenericEvent)
    assert encode_body(event) == body
    assert event.event_type == "from_the_future"


def test_a_field_of_a_newer_version_is_kept_when_read() -> None:
    """Reading keeps a field that this version does not know, and writes it back (B9, EV-8)."""
    event = decode({**ENVELOPE, "event_type": "user_message"}, b'{"content":"x","mood":"good"}')
    assert b'"mood":"good"' in encode_body(event)


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"content":"' + b"[" * 5])
def test_a_body_that_is_no_object_is_a_typed_error(body: bytes) -> None:
    """A damaged body is an InvalidEventError, never a crash (B28)."""
    with pytest.raises(InvalidEventError):
        decode({**ENVELOPE, "event_type": "user_message"}, body)
    kept = generic_event({**ENVELOPE, "event_type": "user_message"}, body, reason="why")
    assert kept.model_extra is not None
    assert kept.model_extra["unreadable"] == "why"


def test_times_serialise_to_utc_whatever_their_zone() -> None:
    """A time in any zone is the same moment in UTC text with Z (A28, B18, EV-4)."""
    there = datetime(2026, 1, 2, 5, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    event = UserMessageEvent(content="x", timestamp=there)
    assert event.timestamp is not None
    assert event.timestamp.tzinfo is UTC
    assert utc_text(event.timestamp) == "2026-01-02T03:04:05.000006Z"


def test_utc_text_of_microseconds_is_that_of_the_datetime() -> None:
    """Both ways to write a time give the same text, also before 1970 (B18)."""
    for unix_us in (0, 1, 1_764_000_000_123_456, -1):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=unix_us)
        assert utc_text_us(unix_us) == utc_text(moment)


def test_events_are_frozen() -> None:
    """History is not changed by changing an object (A26)."""
    event = UserMessageEvent(content="x")
    with pytest.raises(ValueError, match="frozen"):
        event.content = "y"  # type: ignore[misc]


def test_upcasts_run_one_version_after_another() -> None:
    """An old body is brought up step by step, and steps of other types are not its own (C18, EV-5)."""
    steps = {
        ("a", 1): lambda body: {**body, "one": True},
        ("a", 3): lambda body: {**body, "three": body["one"]},
        ("b", 2): lambda body: {},
    }
    assert upcast("a", {"x": 1}, version=1, current=4, steps=steps) == {"x": 1, "one": True, "three": True}
    assert upcast("a", {"x": 1}, version=4, current=4, steps=steps) == {"x": 1}


def test_an_event_of_an_older_version_is_brought_to_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading is where old bodies become new ones; an event says then which version it has (C18)."""
    envelope = {"event_type": "user_message", "v": 1}
    assert decode(envelope, b'{"content":"hi"}').v == 1
    monkeypatch.setattr(UserMessageEvent, "VERSION", 3)
    assert decode(envelope, b'{"content":"hi"}').v == 3
    assert decode({**envelope, "v": 4}, b'{"content":"hi"}').v == 4


def test_utc_text_brings_any_zone_to_utc() -> None:
    """Texts of times compare as the times do, whatever zone they were given in (B18)."""
    east = datetime(2026, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert utc_text(east) == "2026-01-01T23:30:00.000000Z"


def test_what_is_kept_of_an_event_that_cannot_be_read_is_never_taken_for_its_envelope() -> None:
    """Its own fields are kept; those that a store gives, and the note of what was normalised, are what they must be (C16, EV-9)."""
    body = b'{"seq": "x", "session_id": 7, "normalised": "odd", "what": [1]}'
    kept = generic_event({**ENVELOPE, "event_type": "user_message"}, body, reason="why")
    assert (kept.seq, kept.session_id, kept.normalised) == (3, "sess_a", None)
    assert kept.model_extra == {"what": [1], "unreadable": "why"}


@pytest.mark.parametrize("version", ["two", None, [1]])
def test_a_version_that_is_no_number_is_refused(version: object) -> None:
    """Whatever stands there, what cannot be read is a typed error (B15, C16)."""
    with pytest.raises(InvalidEventError):
        event_from_fields({"event_type": "user_message", "content": "hi", "v": version})
