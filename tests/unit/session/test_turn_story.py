"""What the log of one turn says of it, read by whoever goes on with it (C14)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kipu.events.codec import event_from_fields
from kipu.session.turn_story import TurnStory, turn_story

START = datetime(2026, 1, 1, tzinfo=UTC)
STARTED: dict[str, Any] = {"event_type": "turn_started", "turn_id": "t", "consumes": [2], "principal": "ada"}
CALL: dict[str, Any] = {"event_type": "tool_call", "turn_id": "t", "tool_name": "read", "tool_call_id": "c"}
BEGUN: dict[str, Any] = {"event_type": "tool_started", "turn_id": "t", "tool_call_id": "c"}
RESULT: dict[str, Any] = {"event_type": "tool_result", "turn_id": "t", "tool_call_id": "c", "result": "r"}
ANSWER: dict[str, Any] = {"event_type": "agent_message", "turn_id": "t", "content": "done"}
RESUMED: dict[str, Any] = {"event_type": "turn_resumed", "turn_id": "t"}
PARKED: dict[str, Any] = {"event_type": "turn_parked", "turn_id": "t", "waits_for": ["p"]}
STEERED: dict[str, Any] = {"event_type": "turn_steered", "turn_id": "t", "consumes": [9]}
ASKED: dict[str, Any] = {
    "event_type": "approval_request",
    "turn_id": "t",
    "approval_id": "p",
    "tool_call_id": "c",
    "tool_name": "read",
    "arguments_hash": "h",
}
DECIDED: dict[str, Any] = {
    "event_type": "approval_decision",
    "approval_id": "p",
    "decision": "approved_once",
    "by": "x",
}


def told(*specs: dict[str, Any]) -> TurnStory:
    """Return the story of events a second apart."""
    return turn_story(
        event_from_fields({"seq": seq, "session_id": "s", "timestamp": START + timedelta(seconds=seq), **spec})
        for seq, spec in enumerate(specs, 3)
    )


def test_a_turn_answers_what_began_it_and_what_joined_it() -> None:
    """Its messages are those it took at first and on its way, and an answer is none to a message that came behind it (C12)."""
    story = told(STARTED, ANSWER)
    assert (story.turn_id, story.started_seq, story.principal, story.consumes) == ("t", 3, "ada", [2])
    assert story.is_answered
    assert told(STARTED, ANSWER, STEERED).consumes == [2, 9]
    assert not told(STARTED, ANSWER, STEERED).is_answered
    assert not told(STARTED, ANSWER, CALL).is_answered
    assert not told(STARTED, {**ANSWER, "state": "interrupted"}).is_answered


def test_a_call_is_open_until_its_result() -> None:
    """How often it began, and whether it began in vain, is known of it; a result that was made up says what ran (C14)."""
    (call,) = told(STARTED, CALL, BEGUN, BEGUN).open_calls
    assert (call.id, call.starts, call.parks) == ("c", 2, 0)
    assert told(STARTED, CALL, BEGUN, PARKED).open_calls[0].parks == 1
    assert told(STARTED, CALL, BEGUN).used_tools == ["read"]
    done = told(STARTED, CALL, BEGUN, {**RESULT, "usage": {"tokens": 3}})
    assert (done.open_calls, done.interrupted, done.spent_by_calls) == ([], [], [{"tokens": 3}])
    unknown = told(STARTED, CALL, BEGUN, {**RESULT, "synthetic": "interrupted"})
    assert [each.tool_call_id for each in unknown.interrupted] == ["c"]


def test_who_was_asked_is_waited_for_until_the_first_decision() -> None:
    """A call waits for a person from the request to the first decision about it, and for nobody before (C15)."""
    assert not told(STARTED, CALL).open_calls[0].awaits_decision
    assert told(STARTED, CALL, ASKED).open_calls[0].awaits_decision
    assert told(STARTED, CALL, ASKED, {**DECIDED, "approval_id": "other"}).open_calls[0].awaits_decision
    (call,) = told(STARTED, CALL, ASKED, DECIDED, {**DECIDED, "decision": "denied"}).open_calls
    assert not call.awaits_decision
    assert call.decision is not None
    assert call.decision.decision == "approved_once"


@pytest.mark.parametrize("step", [RESULT, ANSWER, PARKED, {"event_type": "note", "kind": "kipu.handed_over"}])
def test_a_turn_is_taken_up_in_vain_until_something_comes_of_it(step: dict[str, Any]) -> None:
    """Every try counts, and what came of one lets the counting begin anew; that a call begins is a step, and no success (C14)."""
    tried = told(STARTED, CALL, RESUMED, RESUMED)
    assert (tried.resumed_in_vain, tried.resumed_without_step) == (2, 2)
    begun = told(STARTED, CALL, RESUMED, RESUMED, BEGUN)
    assert (begun.resumed_in_vain, begun.resumed_without_step) == (2, 0)
    got_on = told(STARTED, CALL, RESUMED, RESUMED, step)
    assert (got_on.resumed_in_vain, got_on.resumed_without_step) == (0, 0)
    noted = told(STARTED, CALL, RESUMED, {"event_type": "note", "kind": "mail"})
    assert noted.resumed_in_vain == 1


def test_only_time_at_work_counts() -> None:
    """From when it began, or was taken up, to its own last event: neither the time between nor what others say is work (C14)."""
    waited: dict[str, Any] = {"event_type": "note", "kind": "mail"}
    story = told(STARTED, CALL, PARKED, waited, DECIDED, RESUMED)
    assert story.worked_s == 2.0
    assert story.worked_since == START + timedelta(seconds=8)
    other = {**CALL, "turn_id": "u", "tool_call_id": "d"}
    assert told(STARTED, CALL, other, RESUMED).worked_s == 1.0
    assert told(STARTED, CALL, {**DECIDED, "turn_id": "t"}, RESUMED).worked_s == 1.0


def test_a_clock_that_went_back_takes_no_work_away() -> None:
    """Where a machine's clock was set back, or an event has no time, the turn worked no less than before (C1, C14)."""
    worked = (STARTED, CALL, RESUMED)
    assert told(*worked, {**RESULT, "timestamp": START}, RESUMED).worked_s == 1.0
    assert told(*worked, {**RESULT, "timestamp": None}, RESUMED).worked_s == 1.0
    assert told({**STARTED, "timestamp": None}, CALL, RESUMED).worked_s == 0.0


def test_what_a_turn_spent_is_in_its_answers_and_results() -> None:
    """Each answer says what it used and whose it was, and a call what it spent, so that limits hold after a crash (C14)."""
    mark = {"name": "p", "model": "m"}
    story = told(
        STARTED, {**ANSWER, "usage": {"tokens": 5}, "provider": mark}, ANSWER, CALL, {**RESULT, "usage": {"n": 1}}
    )
    assert story.answered == [({"tokens": 5}, "p", "m"), (None, "", "")]
    assert story.spent_by_calls == [{"n": 1}]
    assert told(STARTED, CALL, RESULT).spent_by_calls == []


def test_a_turn_taken_up_again_waits_for_nobody() -> None:
    """What it was parked for is over: it is asked anew whether it still has to wait (C15)."""
    parked = told(STARTED, CALL, {**PARKED, "until": "2026-01-03T00:00:00Z"}, DECIDED)
    assert (parked.waits_for, parked.until is None, parked.decided is None) == (["p"], False, False)
    resumed = told(STARTED, CALL, {**PARKED, "until": "2026-01-03T00:00:00Z"}, DECIDED, RESUMED)
    assert (resumed.waits_for, resumed.until, resumed.decided) == ([], None, None)


def test_the_strongest_wish_to_end_a_turn_is_met() -> None:
    """Whatever the order of the wishes; one about another turn is none about this (C12)."""

    def stop(mode: str, turn: str = "t") -> dict[str, Any]:
        return {"event_type": "stop_requested", "turn_id": turn, "mode": mode}

    assert told(STARTED).stop_mode is None
    for order in (
        ("stop", "rollback", "interrupt"),
        ("rollback", "interrupt", "stop"),
        ("interrupt", "stop", "rollback"),
    ):
        assert told(STARTED, *(stop(mode) for mode in order)).stop_mode == "rollback"
    assert told(STARTED, stop("rollback", "u"), stop("stop")).stop_mode == "stop"
