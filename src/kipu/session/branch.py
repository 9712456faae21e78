"""Branches: which events a session sees, given forks (shared prefixes) and rewinds (undone ranges)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kipu.events.boundary import RewindEvent
from kipu.events.event import SessionEvent


class Span(NamedTuple):
    """A range of a log: own events of `session_id` with after < seq <= until."""

    session_id: str
    after: int
    until: int


def lineage(ancestors: Sequence[tuple[str, int]], session_id: str, *, last_seq: int) -> list[Span]:
    """Return the spans whose events, one after another, are the session's history (C11).

    `ancestors` are (session id, fork seq) from the oldest to the parent: each gives the events up to where its child began.
    """
    spans: list[Span] = []
    after = 0
    for ancestor, until in ancestors:
        spans.append(Span(ancestor, after, until))
        after = until
    spans.append(Span(session_id, after, last_seq))
    return [span for span in spans if span.until > span.after]


def undone(rewinds: Iterable[RewindEvent]) -> list[tuple[int, int]]:
    """Return the open intervals (to_seq, rewind seq) that are undone, newest last, nested ones merged into the outer."""
    intervals: list[tuple[int, int]] = []
    for rewind in sorted(rewinds, key=lambda event: event.seq):
        while intervals and intervals[-1][0] >= rewind.to_seq:
            intervals.pop()
        if intervals and intervals[-1][1] > rewind.to_seq:
            # It goes back into a range that an earlier rewind had left behind: what is visible there is its end.
            intervals[-1] = (intervals[-1][0], max(intervals[-1][1], rewind.seq))
            continue
        intervals.append((rewind.to_seq, rewind.seq))
    return intervals


def is_undone(seq: int, intervals: Sequence[tuple[int, int]]) -> bool:
    """Return True when the event of this seq lies in an undone range."""
    return any(low < seq < high for low, high in intervals)


def visible(events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """Return the events that no rewind among them has undone."""
    intervals = undone(event for event in events if isinstance(event, RewindEvent))
    return [event for event in events if not is_undone(event.seq, intervals)]
