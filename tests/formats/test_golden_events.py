"""Golden files: what any released version wrote still loads, and is written back as it was (C18)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from kipu.events.boundary import GenericEvent
from kipu.events.codec import decode, encode_body
from kipu.events.event import ENVELOPE_FIELDS
from kipu.events.registry import EVENT_CLASSES

GOLDEN = Path(__file__).parent / "golden"
LINES = (GOLDEN / "events-v1.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(orjson.loads(line)["event_type"]))
def test_golden_event_loads_and_is_written_back_as_it_was(line: bytes) -> None:
    """Each event of format 1 loads as its own class, with no field lost or changed (C18, B29, EV-1, EV-5, EV-7)."""
    stored: dict[str, Any] = orjson.loads(line)
    envelope = {name: stored.get(name) for name in ENVELOPE_FIELDS if name in stored}
    body = {name: value for name, value in stored.items() if name not in ENVELOPE_FIELDS}
    event = decode(envelope, orjson.dumps(body))
    assert type(event) is EVENT_CLASSES.get(stored["event_type"], GenericEvent)
    assert orjson.loads(encode_body(event)) == body
    assert [getattr(event, name) for name in ("seq", "event_id", "session_id", "v")] == [
        stored[name] for name in ("seq", "event_id", "session_id", "v")
    ]


def test_golden_file_holds_every_type() -> None:
    """No type may be added without a golden event (C18)."""
    assert {orjson.loads(line)["event_type"] for line in LINES} >= set(EVENT_CLASSES)
