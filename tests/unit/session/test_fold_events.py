"""What each type of event does to a session's head, and what it leaves alone (B26, B30, B50)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.ports.head import Head
from tests.unit.session.test_fold_batches import INIT, STARTED, at_once, one_by_one, said

SECOND = "2026-01-01T00:00:01.000000Z"
CALL = {"event_type": "tool_call", "tool_name": "read", "tool_call_id": "c"}
RESULT = {"event_type": "tool_result", "tool_call_id": "c", "result": "r"}


@pytest.mark.parametrize(
    "used",
    [
        said("hi"),
        {"event_type": "agent_message", "content": "hello"},
        CALL,
        RESULT,
        STARTED,
        {"event_type": "turn_finished", "turn_id": "t1", "outcome": "completed"},
    ],
    ids=lambda spec: str(spec["event_type"]),
)
def test_messages_calls_and_turns_are_activity(used: dict[str, Any]) -> None:
    """A session whose agent works is not idle, however long nobody has spoken to it (A55, B30, B47)."""
    later = {"event_type": "note", "kind": "mail"}
    assert one_by_one(INIT, used, later).last_activity_at == SECOND
    assert at_once(INIT, used, later).last_activity_at == SECOND


def test_lists_show_the_last_of_what_was_said_and_done() -> None:
    """The previews are the last three messages and calls, each as one short line (B50)."""
    head = one_by_one(
        INIT, said("one"), said("two\n\n 2"), {"event_type": "agent_message", "content": "x" * 9_000}, CALL
    )
    assert [preview.text[:5] for preview in head.previews] == ["two 2", "xxxxx", "read"]
    assert all(len(preview.text) <= 120 for preview in head.previews)
    assert head == at_once(
        INIT, said("one"), said("two\n\n 2"), {"event_type": "agent_message", "content": "x" * 9_000}, CALL
    )


def test_the_first_event_says_what_the_session_is() -> None:
    """Key, workspace, origin and Kipu's own settings stand in the head's fields, the others in its metadata (B22, B37)."""
    metadata = {"topic": "login", "title": "T", "tags": ["a"], "pinned": True}
    fields = {"key": "cli:1", "workspace": {"root": "/w"}, "origin": {"from": "x"}, "tenant": "t"}
    head = one_by_one({**INIT, **fields, "metadata": metadata})
    assert (head.title, head.tags, head.pinned, head.metadata) == ("T", ("a",), True, {"topic": "login"})
    assert (head.key, head.workspace, head.origin, head.tenant) == ("cli:1", {"root": "/w"}, {"from": "x"}, "t")
    assert head.created_at == "2026-01-01T00:00:00.000000Z"


def test_a_fork_begins_where_its_parent_stood_until_it_is_detached() -> None:
    """What a fork took over of its parent's row is its own, and detached it begins at its first event (C11)."""
    inherited = {"instruction_seq": 2, "pins": [3], "first_text": "hi"}
    fork = {**INIT, "forked_from": {"session_id": "p", "seq": 9}, "inherited": inherited}
    head = one_by_one(fork)
    assert (head.forked_from, head.base_seq, head.instruction_seq, head.pins) == ("p", 9, 2, (3,))
    assert head.first_text == "hi"
    detached = one_by_one(fork, {"event_type": "fork_detached", "parent": "p", "base_seq": 9})
    assert (detached.forked_from, detached.base_seq, detached.pins) == (None, 0, (3,))


@pytest.mark.parametrize(
    ("value", "tags"), [(["a", "b"], ("a", "b")), ("one", ("one",)), (None, ()), ("", ()), (5, ("5",)), ([1], ("1",))]
)
def test_tags_are_a_list_of_texts_whatever_was_given(value: Any, tags: tuple[str, ...]) -> None:
    """One tag is a list of one, and none is an empty list: lists can be filtered by them (B26)."""
    assert one_by_one(INIT, {"event_type": "metadata_changed", "set": {"tags": value}}).tags == tags


def test_settings_that_were_unset_are_as_they_were_at_first() -> None:
    """Each of the head's own settings has a value without which no list could be made; the others are gone (B26, B37)."""
    given = {"title": "T", "tags": ["a"], "pinned": True, "kipu.workspace": {"root": "/w"}, "topic": "x"}
    set_all = {"event_type": "metadata_changed", "set": given}
    assert one_by_one(INIT, set_all).workspace == {"root": "/w"}
    head = one_by_one(INIT, set_all, {"event_type": "metadata_changed", "unset": list(given)})
    assert (head.title, head.tags, head.pinned, head.workspace, head.metadata) == (None, (), False, None, {})
    odd = {"event_type": "metadata_changed", "set": {"title": None, "kipu.workspace": "/w"}}
    assert (one_by_one(INIT, set_all, odd).title, one_by_one(INIT, set_all, odd).workspace) == (None, None)


def test_what_a_turn_takes_up_on_its_way_waits_no_longer() -> None:
    """A message that joined a running turn is consumed as the one that began it, and leaves the turn open (C12)."""
    steered = {"event_type": "turn_steered", "turn_id": "t1", "consumes": [2]}
    head = one_by_one(INIT, said("a", queued=True), STARTED, steered)
    assert (head.waiting, head.open_turn, head.open_turn_seq) == ((), "t1", 3)
    ended = one_by_one(INIT, STARTED, {"event_type": "turn_finished", "turn_id": "t1", "outcome": "completed"})
    assert (ended.open_turn, ended.open_turn_seq) == (None, 0)


def test_a_message_to_a_parked_turn_wakes_it_when_it_expires() -> None:
    """An arrival that says when it must be looked at brings the parked turn's time forward, and one that does not leaves it (C12)."""
    parked = {"event_type": "turn_parked", "turn_id": "t1", "waits_for": ["p"], "until": "2026-01-03T00:00:00Z"}
    waking = said("b", queued=True, busy={"wakes_at": "2026-01-02T00:00:00.000000Z"})
    assert one_by_one(INIT, STARTED, parked, waking).due_at == "2026-01-02T00:00:00.000000Z"
    for busy in (None, {"wakes_at": 5}, {"wakes_at": None}):
        assert (
            one_by_one(INIT, STARTED, parked, said("b", queued=True, busy=busy)).due_at == "2026-01-03T00:00:00.000000Z"
        )
    quiet = said("c", queued=True, busy={"due_at": 7})
    assert one_by_one(INIT, quiet).due_at == ""


@pytest.mark.parametrize("ends", [True, False])
def test_a_decision_is_about_the_turn_that_waits_for_it(ends: bool) -> None:
    """A decision, and the wait for it, are over with the turn, and when it is taken up again (A71, C15)."""
    parked = {"event_type": "turn_parked", "turn_id": "t1", "waits_for": ["p"]}
    decided = {"event_type": "approval_decision", "approval_id": "p", "decision": "approved_once", "by": "x"}
    over = {"event_type": "turn_finished", "turn_id": "t1", "outcome": "completed"}
    resumed = {"event_type": "turn_resumed", "turn_id": "t1"}
    before = one_by_one(INIT, STARTED, parked, decided)
    assert (before.parked, before.decided) == (True, True)
    head = one_by_one(INIT, STARTED, parked, decided, over if ends else resumed)
    assert (head.parked, head.decided) == (False, False)


def test_a_sent_answer_is_no_longer_to_be_delivered() -> None:
    """A delivery takes the messages that it answers out of those whose answer is to go out, and no others (C5, C30)."""
    sent = {"event_type": "delivery", "message_seq": 2, "status": "sent", "answers": [2]}
    head = one_by_one(INIT, said("a", queued=True, deliver=True), said("b", queued=True, deliver=True), sent)
    assert head.undelivered == (3,)


def test_a_result_that_its_tool_pinned_is_a_pin() -> None:
    """The head names it, so that it is found however far behind the window's start it is (B36)."""
    assert one_by_one(INIT, CALL, {**RESULT, "pinned": True}).pins == (3,)
    assert one_by_one(INIT, CALL, RESULT).pins == ()


def test_a_bound_key_and_members_are_what_was_said_last() -> None:
    """The head has the newest key, and every member with the newest role, those who were left out again not (A22, B56)."""
    bound = {"event_type": "key_bound", "key": "cli:2"}
    changes = [
        {"event_type": "members_changed", "roles": {"bo": "viewer", "cy": "viewer"}, "by": "ada"},
        {"event_type": "members_changed", "roles": {"bo": "participant"}, "revoked": ["cy"], "by": "ada"},
    ]
    for head in (one_by_one(INIT, bound, *changes), at_once(INIT, bound, *changes)):
        assert (head.key, head.members) == ("cli:2", {"bo": "participant"})


def test_a_refusal_is_counted_and_dated() -> None:
    """How often somebody was refused, and when last, tells whether one more goes on record (C19)."""
    denied = {"event_type": "access_denied", "verb": "read", "who": "eve"}

    def counted(head: Head) -> tuple[int, str]:
        return head.denied_count, head.denied_at

    assert counted(one_by_one(INIT, denied)) == (1, SECOND)
    assert counted(one_by_one(INIT, denied, denied)) == (2, "2026-01-01T00:00:02.000000Z")
    assert counted(at_once(INIT, denied, denied)) == (2, "2026-01-01T00:00:02.000000Z")


@pytest.mark.parametrize("start", ["3", None, [3], True, -1, 900])
def test_a_record_of_a_window_without_a_start_moves_none(start: Any) -> None:
    """Whatever a program wrote there, the head's start of the window stays a seq (B33, B50)."""
    call = {"event_type": "model_call", "model": "m", "window": {"from": 2}}
    for odd in (
        {**call, "window": {"from": start}},
        {"event_type": "note", "kind": "kipu.window", "data": {"from": start}},
        {"event_type": "note", "kind": "mail", "data": {"from": 1}},
    ):
        assert one_by_one(INIT, said("a"), call, odd).window_seq == 2


def test_a_rewind_moves_the_window_to_what_stands() -> None:
    """Where a rewind says that the window starts in what it undid, none is recorded: the model would be shown nothing (B33, C16)."""
    rewind = {"event_type": "rewind", "to_seq": 2, "window_seq": 2}
    assert one_by_one(INIT, said("a"), said("b"), rewind).window_seq == 2
    assert one_by_one(INIT, said("a"), said("b"), {**rewind, "window_seq": 3}).window_seq == 0
