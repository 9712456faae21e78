"""One batch of events makes the head that they make one by one, whatever stands in it together (B50, C2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kipu.events.boundary import GenericEvent
from kipu.events.codec import event_from_fields
from kipu.events.event import SessionEvent, utc_text
from kipu.ports.head import Head, apply_patch, head_from_json
from kipu.session.fold import fold
from kipu.session.patch import patch_for

START = datetime(2026, 1, 1, tzinfo=UTC)
INIT: dict[str, Any] = {"event_type": "session_init", "owner": "ada"}
STARTED: dict[str, Any] = {"event_type": "turn_started", "turn_id": "t1"}
PARKED: dict[str, Any] = {
    "event_type": "turn_parked",
    "turn_id": "t1",
    "waits_for": ["p"],
    "until": "2026-01-03T00:00:00Z",
}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"event_type": "user_message", "content": text, **fields}


def events_of(*specs: dict[str, Any], step_s: int = 1) -> list[SessionEvent]:
    times = [START + timedelta(seconds=step_s * number) for number in range(len(specs))]
    return [
        event_from_fields({"seq": seq, "session_id": "s", "timestamp": time, **fields})
        for seq, (time, fields) in enumerate(zip(times, specs, strict=True), 1)
    ]


def one_by_one(*specs: dict[str, Any], step_s: int = 1) -> Head:
    return fold(events_of(*specs, step_s=step_s), session_id="s")


def at_once(*specs: dict[str, Any], step_s: int = 1) -> Head:
    events = events_of(*specs, step_s=step_s)
    times = [utc_text(event.timestamp) for event in events if event.timestamp]
    patch = patch_for(events, times)
    return head_from_json(apply_patch({"session_id": "s"}, patch, first_seq=1, timestamps=times, tokens=0))


INSTRUCTION = {"event_type": "instruction", "content": "be brief"}
TO_3 = {"event_type": "rewind", "to_seq": 3, "instruction_seq": 2}
TO_1 = {"event_type": "rewind", "to_seq": 1}
CONSOLIDATED = {"event_type": "consolidation", "from_seq": 1, "to_seq": 4}
PINNED = {"event_type": "event_pinned", "seqs": [2, 3], "on": True}
UNPINNED = {"event_type": "event_pinned", "seqs": [2], "on": False}


@pytest.mark.parametrize(
    "specs",
    [
        (INIT, INSTRUCTION, said("a"), TO_1),
        (INIT, INSTRUCTION, said("a"), said("b"), TO_3, INSTRUCTION),
        (INIT, INSTRUCTION, said("a"), said("b"), CONSOLIDATED, TO_1, TO_3),
        (INIT, INSTRUCTION, said("a"), said("b"), CONSOLIDATED, TO_3, TO_1),
        (INIT, INSTRUCTION, said("a"), said("b"), CONSOLIDATED, TO_1, CONSOLIDATED),
        (INIT, said(" "), said("spoken")),
        (INIT, said("a"), said("b"), PINNED, UNPINNED),
        (INIT, said("a"), said("b"), PINNED, UNPINNED, PINNED),
    ],
)
@pytest.mark.parametrize("step_s", [1, -1])
def test_a_batch_makes_the_head_of_its_events(specs: tuple[dict[str, Any], ...], step_s: int) -> None:
    """What comes later in a batch counts, and of times the latest, also with a clock that goes back (B50, C1)."""
    head = at_once(*specs, step_s=step_s)
    assert head == one_by_one(*specs, step_s=step_s)
    assert head.first_text == next(
        spec["content"] for spec in specs if str(spec.get("content", " ")) in ("a", "spoken")
    )


def test_a_turn_that_ended_leaves_nothing_that_was_meant_for_it() -> None:
    """A stop goes with its turn, and a resumed turn waits for no moment any more (A71, C5)."""
    stop = {"event_type": "stop_requested", "turn_id": "t1"}
    assert one_by_one(INIT, STARTED, stop).stop == "t1"
    assert one_by_one(INIT, STARTED, stop, {"event_type": "turn_finished", "turn_id": "t1"}).stop is None
    assert one_by_one(INIT, STARTED, PARKED).not_before == "2026-01-03T00:00:00.000000Z"
    assert one_by_one(INIT, STARTED, PARKED, {"event_type": "turn_resumed", "turn_id": "t1"}).not_before is None


def test_only_what_is_to_be_delivered_waits_for_its_delivery() -> None:
    """A message of a program, whose answer goes nowhere, is in no queue of answers (C12)."""
    head = one_by_one(INIT, said("a", queued=True), said("b", queued=True, deliver=True))
    assert (head.waiting, head.undelivered) == ((2, 3), (3,))


def test_a_message_behind_one_that_is_due_leaves_the_quiet_time_to_it() -> None:
    """A collected message that stands behind another does not put off what is due before it (C12)."""
    first = said("a", queued=True, busy={"mode": "collect", "due_at": "2026-01-01T00:01:00Z"})
    behind = said("b", queued=True, busy={"mode": "collect", "due_at": "2026-01-01T00:09:00Z", "behind": 2})
    assert one_by_one(INIT, first, behind).quiet_until == "2026-01-01T00:01:00Z"


def test_odd_settings_spoil_no_listing() -> None:
    """A title or tags of another type are kept as text: every head can be listed (B26, B50)."""
    odd = {"event_type": "metadata_changed", "set": {"title": 5, "tags": [1, "x"]}}
    head = one_by_one(INIT, odd)
    assert (head.title, head.tags) == ("5", ("1", "x"))


def test_an_event_that_does_not_validate_moves_nothing() -> None:
    """A stored status or stop that cannot be understood is kept as it is, and changes no head (B15, B29)."""
    odd: list[tuple[str, dict[str, Any]]] = [
        ("status_changed", {"status": "archived"}),
        ("stop_requested", {"turn_id": "t1"}),
    ]
    for kind, fields in odd:
        envelope = {"seq": 3, "session_id": "s", "timestamp": START, "event_type": kind, "invalid_reason": "odd"}
        generic = GenericEvent.model_validate({**envelope, **fields})
        head = fold([*events_of(INIT, STARTED), generic], session_id="s")
        assert (head.status, head.stop, head.open_turn) == ("active", None, "t1")
