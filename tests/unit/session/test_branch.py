"""Forks and rewinds: what is visible."""

from __future__ import annotations

import pytest

from kipu.events.boundary import NoteEvent, RewindEvent
from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnStartedEvent, TurnSteeredEvent
from kipu.session.branch import Span, lineage, visible


def log(*spec: int | tuple[int, int]) -> list[SessionEvent]:
    """Numbers are plain events of that seq, pairs are rewinds (seq, to_seq)."""
    return [
        RewindEvent(seq=one[0], to_seq=one[1]) if isinstance(one, tuple) else NoteEvent(seq=one, kind="x")
        for one in spec
    ]


def seen(events: list[SessionEvent]) -> list[int]:
    return [event.seq for event in visible(events) if not isinstance(event, RewindEvent)]


def test_a_rewind_hides_what_came_after_its_point() -> None:
    """Events between the point and the rewind are hidden, later ones are not, and none is gone (C11, A26)."""
    events = log(1, 2, 3, (4, 1), 5)
    assert seen(events) == [1, 5]
    assert len(events) == 5


def test_rewinds_nest() -> None:
    """A rewind further back hides the earlier rewind's range too; one of a later part leaves it (C11)."""
    assert seen(log(1, 2, 3, (4, 2), 5, (6, 1), 7)) == [1, 7]
    assert seen(log(1, 2, 3, (4, 1), 5, 6, (7, 5), 8)) == [1, 5, 8]
    assert seen(log(1, 2, 3, (4, 1), 5, (6, 3), 7)) == [1, 2, 3, 7]


def test_a_rewind_to_the_start_hides_everything_before_it() -> None:
    """Going back to 0 leaves only what follows (C11)."""
    assert seen(log(1, 2, (3, 0), 4)) == [4]


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        (NoteEvent(seq=6, kind="x"), False),
        (TurnStartedEvent(seq=6, turn_id="t", consumes=[2]), True),
        (TurnSteeredEvent(seq=6, turn_id="t", consumes=[2]), True),
        (MessageSettledEvent(seq=6, seqs=[2], reason="cancelled"), False),
    ],
)
def test_a_message_stands_with_the_turn_that_took_it(later: SessionEvent, stands: bool) -> None:
    """One that came, and was taken, in what was undone is hidden with it, until a turn that stands takes it (C11, C12)."""
    arrived = UserMessageEvent(seq=2, content="hi", queued=True)
    undone = [arrived, UserMessageEvent(seq=3, content="beside"), TurnStartedEvent(seq=4, turn_id="u", consumes=[2])]
    assert (2 in seen([*log(1), *undone, *log((5, 1)), later])) == stands
    assert 3 not in seen([*log(1), *undone, *log((5, 1)), later])


def test_a_message_that_was_settled_is_not_told() -> None:
    """What got no turn is no part of what was said, whether or not anything was undone (C12)."""
    arrived = UserMessageEvent(seq=2, content="hi", queued=True)
    assert 2 in seen([*log(1), arrived])
    assert 2 not in seen([*log(1), arrived, MessageSettledEvent(seq=3, seqs=[2], reason="cancelled")])


def test_a_rewind_that_leads_nowhere_hides_nothing() -> None:
    """One to itself or to what comes later undoes nothing, whatever wrote it (C11)."""
    assert seen(log(1, 2, (3, 3), 4)) == [1, 2, 4]
    assert seen(log(1, (2, 1), 3, (4, 9), 5)) == [1, 3, 5]
    assert seen([]) == []


def test_lineage_leaves_out_whom_nothing_is_taken_from() -> None:
    """An ancestor whose child began where it began itself, and a fork without an event yet, have no span (C11)."""
    assert lineage([("a", 120), ("b", 120)], "c", last_seq=120) == [Span("a", 0, 120)]


def test_lineage_puts_ancestors_before_the_child() -> None:
    """A fork of a fork sees each ancestor up to where its child began, then its own events (C11)."""
    spans = lineage([("a", 120), ("b", 130)], "c", last_seq=140)
    assert spans == [Span("a", 0, 120), Span("b", 120, 130), Span("c", 130, 140)]
    assert lineage([], "c", last_seq=3) == [Span("c", 0, 3)]
