"""Which events of a log still stand: what a rewind undid is not shown, and settled messages never are."""

from __future__ import annotations

from collections.abc import Sequence

from kipu.context.item import Item
from kipu.events.boundary import EventPinnedEvent, RewindEvent
from kipu.events.conversation import UserMessageEvent
from kipu.session.branch import is_undone, undone


def undone_ranges(items: Sequence[Item]) -> list[tuple[int, int]]:
    """Return the open ranges (to_seq, rewind) that rewinds hide; `items` are in the order of their `seq`."""
    return undone([(item.seq, item.event) for item in items])


def undone_anchor(
    items: Sequence[Item], ranges: Sequence[tuple[int, int]], *, last_change: int, known: int | None
) -> int | None:
    """Return where a window must be read anew from, when a rewind led to before what last changed its beginning."""
    for item in items:
        event = item.event
        if isinstance(event, RewindEvent) and event.to_seq < last_change and (event.to_seq, item.seq) in ranges:
            known = event.window_seq
    return known


def standing(items: Sequence[Item]) -> list[Item]:
    """Return the items that no rewind undid.

    Queued messages stay: an undone turn gives back nothing by itself, but a message that still waits may be consumed later.
    Pins stay too: they are not part of the conversation. Nor are settlements, which a window collects from all its items.
    """
    ranges = undone_ranges(items)
    if not ranges:
        return list(items)
    return [item for item in items if not is_undone(item.seq, ranges) or _outlives(item)]


def _outlives(item: Item) -> bool:
    event = item.event
    if isinstance(event, UserMessageEvent):
        return event.queued
    return isinstance(event, EventPinnedEvent)
