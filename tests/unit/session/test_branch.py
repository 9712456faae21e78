"""Forks and rewinds: what is visible."""

from __future__ import annotations

from kipu.events.boundary import NoteEvent, RewindEvent
from kipu.events.event import SessionEvent
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


def test_lineage_puts_ancestors_before_the_child() -> None:
    """A fork of a fork sees each ancestor up to where its child began, then its own events (C11)."""
    spans = lineage([("a", 120), ("b", 130)], "c", last_seq=140)
    assert spans == [Span("a", 0, 120), Span("b", 120, 130), Span("c", 130, 140)]
    assert lineage([], "c", last_seq=3) == [Span("c", 0, 3)]
