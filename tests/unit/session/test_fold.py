"""The head that events make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.errors import TransitionError
from kipu.events.boundary import GenericEvent
from kipu.events.codec import event_from_fields
from kipu.events.registry import EVENT_CLASSES
from kipu.ports.head import Head, HeadPatch, apply_patch, head_from_json, head_to_json
from kipu.session.fold import fold
from kipu.session.lifecycle import STATUSES, TRANSITIONS, check_transition, revives
from kipu.session.patch import patch_for


def heads(*specs: dict[str, Any]) -> Head:
    """Fold events given as body fields; seq and time count up."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    events = [
        event_from_fields({"seq": seq, "session_id": "s", "timestamp": start + timedelta(seconds=seq), **fields})
        for seq, fields in enumerate(specs, 1)
    ]
    return fold(events, session_id="s")


INIT = {"event_type": "session_init", "owner": "ada", "metadata": {"topic": "login", "title": "T"}}
ARRIVAL = {"event_type": "user_message", "content": "fix it", "queued": True}
STARTED = {"event_type": "turn_started", "turn_id": "t1"}
FINISHED = {"event_type": "turn_finished", "turn_id": "t1"}


def test_an_arrival_is_work_until_a_turn_has_consumed_and_ended() -> None:
    """A waiting message makes the session due, a started turn keeps it so until it ends, and then nothing is (C5)."""
    assert heads(INIT).due_at is None
    assert heads(INIT, ARRIVAL).waiting == (2,)
    assert heads(INIT, ARRIVAL).due_at == ""
    running = heads(INIT, ARRIVAL, {**STARTED, "consumes": [2]})
    assert (running.waiting, running.open_turn, running.due_at) == ((), "t1", "")
    assert heads(INIT, ARRIVAL, {**STARTED, "consumes": [2]}, FINISHED).due_at is None


def test_a_message_that_arrives_during_a_turn_waits_for_the_next() -> None:
    """The next message stays waiting while a turn runs, and is due when it ends (A1)."""
    after = heads(INIT, ARRIVAL, {**STARTED, "consumes": [2]}, ARRIVAL, FINISHED)
    assert (after.waiting, after.due_at) == ((4,), "")


def test_a_parked_turn_is_due_only_by_decision_expiry_or_stop() -> None:
    """Parked, it sleeps until its expiry; a decision or a stop wakes it at once (A71)."""
    parked = {"event_type": "turn_parked", "turn_id": "t1", "waits_for": ["p"], "until": "2026-01-03T00:00:00Z"}
    base = (INIT, ARRIVAL, {**STARTED, "consumes": [2]}, parked)
    decision = {"event_type": "approval_decision", "approval_id": "p", "decision": "approved_once", "by": "x"}
    assert heads(*base).due_at == "2026-01-03T00:00:00.000000Z"
    assert heads(*base, decision).due_at == ""
    assert heads(*base, {"event_type": "stop_requested", "turn_id": "t1"}).due_at == ""
    assert heads(*base, {"event_type": "stop_requested", "turn_id": "an older one"}).due_at != ""


def test_settings_are_set_and_unset_by_events() -> None:
    """Metadata, title, tags and pin are what the last events said (B1, B22, B37)."""
    head = heads(
        INIT,
        {"event_type": "metadata_changed", "set": {"model": "m", "tags": ["a"], "pinned": True, "vars": {"n": 1}}},
        {"event_type": "metadata_changed", "set": {"title": "Better"}, "unset": ["topic", "tags"]},
    )
    assert head.metadata == {"model": "m", "vars": {"n": 1}}
    assert (head.title, head.tags, head.pinned, head.owner) == ("Better", (), True, "ada")


def test_a_rewind_takes_the_boundaries_back_and_leaves_what_waits() -> None:
    """Rewinding lowers the memory boundary and sets the anchors it names; unconsumed messages stay (C11)."""
    head = heads(
        INIT,
        ARRIVAL,
        {"event_type": "consolidation", "to_seq": 2},
        {"event_type": "instruction", "content": "be kind"},
        {"event_type": "rewind", "to_seq": 1},
    )
    assert (head.consolidated_seq, head.instruction_seq, head.rewind_seq, head.waiting) == (1, 0, 5, (2,))


def test_activity_is_messages_and_turns_not_settings() -> None:
    """Changing settings does not make a session look used (B30)."""
    quiet = heads(INIT, ARRIVAL, {"event_type": "metadata_changed", "set": {"a": 1}})
    assert quiet.last_activity_at == "2026-01-01T00:00:02.000000Z"
    assert quiet.last_event_at == "2026-01-01T00:00:03.000000Z"


@given(st.lists(st.sampled_from(sorted(EVENT_CLASSES)) | st.just("unheard_of"), max_size=8), st.randoms())
def test_the_fold_is_total_and_patches_survive_json(types: list[str], random: Any) -> None:
    """Any order of any types has a next state, and a patch read back from JSON does the same (B9, C1)."""
    row: dict[str, Any] = {"session_id": "s"}
    for seq, event_type in enumerate(types, 1):
        kind = EVENT_CLASSES.get(event_type, GenericEvent)
        needed = {
            name: _any(name) for name, spec in kind.model_fields.items() if spec.is_required() and name != "event_type"
        }
        event = event_from_fields({"event_type": event_type, "seq": seq, "timestamp": "2026-01-01T00:00:00Z", **needed})
        patch = patch_for([event])
        once = apply_patch(row, patch, first_seq=seq, timestamps=["2026-01-01T00:00:00.000000Z"], tokens=1)
        again = HeadPatch.from_json(patch.to_json())
        assert apply_patch(row, again, first_seq=seq, timestamps=["2026-01-01T00:00:00.000000Z"], tokens=1) == once
        row = once
    assert row.get("event_count", 0) == len(types)
    if types:
        assert head_from_json({**head_to_json(head_from_json(row))}) == head_from_json(row)


def _any(name: str) -> Any:
    texts = {"outcome": "completed", "reason": "dropped", "status": "active"}
    if name in texts:
        return texts[name]
    if name.endswith("seq"):
        return 1
    if name in ("seqs", "consumes", "waits_for", "facts"):
        return []
    return {} if name == "window" else "x"


def test_the_lifecycle_table_is_the_law() -> None:
    """Every step in the table is allowed, every other is a TransitionError, standing still is nothing (A54)."""
    for before in STATUSES:
        for after in STATUSES:
            if before == after:
                assert not check_transition("s", before, after=after)
            elif after in TRANSITIONS[before]:
                assert check_transition("s", before, after=after)
            else:
                with pytest.raises(TransitionError):
                    check_transition("s", before, after=after)
    assert [status for status in STATUSES if revives(status)] == ["expired", "archived"]
