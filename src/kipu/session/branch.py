"""Branches: which events a session sees, given forks (shared prefixes) and rewinds (undone ranges)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kipu.events.boundary import RewindEvent
from kipu.events.conversation import UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent, TurnStartedEvent, TurnSteeredEvent


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


def undone(entries: Sequence[tuple[int, SessionEvent]]) -> list[tuple[int, int]]:
    """Return the open intervals (to_seq, rewind seq) that are undone, newest first; `entries` are (seq, event) in order.

    Read from the tip back: each rewind that is met leads to what came before its point. So a rewind that was itself undone
    hides nothing, and going back to a point before an earlier rewind shows what stood there then.
    """
    intervals: list[tuple[int, int]] = []
    tip = entries[-1][0] if entries else 0
    for seq, event in reversed(entries):
        if seq <= tip and isinstance(event, RewindEvent) and event.to_seq < seq:
            intervals.append((event.to_seq, seq))
            tip = event.to_seq
    return intervals


def is_undone(seq: int, intervals: Sequence[tuple[int, int]]) -> bool:
    """Return True when `seq` lies strictly within one of the intervals."""
    return any(low < seq < high for low, high in intervals)


def visible(events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """Return the events that stand: what no rewind among them has undone, and no message that was settled.

    A queued message stands with the turn that consumed it: it may have arrived in a turn that was undone.
    """
    intervals = undone([(event.seq, event) for event in events])
    consumed: set[int] = set()
    settled: set[int] = set()
    for event in events:
        if isinstance(event, MessageSettledEvent):
            settled.update(event.seqs)
        elif isinstance(event, TurnStartedEvent | TurnSteeredEvent) and not is_undone(event.seq, intervals):
            consumed.update(event.consumes)

    def stands(event: SessionEvent) -> bool:
        if isinstance(event, UserMessageEvent) and event.queued:
            return event.seq not in settled and (event.seq in consumed or not is_undone(event.seq, intervals))
        return not is_undone(event.seq, intervals)

    return [event for event in events if stands(event)]
