"""What is pinned of a session: since when, and which exchanges that keeps before its window (B36)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kipu.context.item import Item
from kipu.context.log_view import standing
from kipu.context.policy import WindowPolicy
from kipu.context.retention import is_queued, pinned_exchange, takes
from kipu.events.boundary import EventPinnedEvent, RewindEvent, SessionInitEvent
from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.events.turn import MessageSettledEvent
from kipu.ports.head import Head

if TYPE_CHECKING:
    from kipu.manager.loader import HistoryReader


def pins_at(tail: Sequence[Item], head: Head, *, known: int) -> tuple[int, frozenset[int]]:
    """Return an event, and the pins that were in effect at it; the window meets those that came later.

    No rewind takes a pin back, and a fork has its parent's: where there is either, the head knows what the tail does not.
    What was unpinned since is left out at once: nothing that a window did since then can have depended on it.
    """
    pins = frozenset(head.pins)
    for item in reversed(tail):
        event = item.event
        if item.seq <= known or isinstance(event, RewindEvent | SessionInitEvent):
            return max(item.seq, known), pins
        if isinstance(event, EventPinnedEvent) and event.on:
            pins = pins.difference(event.seqs)
        elif isinstance(event, ToolResultEvent) and event.pinned:
            pins = pins.difference([item.seq])
    return known, pins


async def shown_of_pin(
    reader: HistoryReader, pin: int, *, head: Head, start_seq: int, policy: WindowPolicy
) -> list[Item]:
    """Return the exchange of a pinned event from before a window's start; none where it was undone, or never shown there."""
    before = await reader.backwards(until=pin)
    if not before or before[0].seq != pin:
        return []
    pinned = before[0]
    stands_at = await _taken_at(reader, pin, until=start_seq - 1) if is_queued(pinned) else pin
    if not stands_at or await is_undone_in(reader, stands_at, newest=head.rewind_seq, tip=head.last_seq):
        return []
    if isinstance(pinned.event, UserMessageEvent):
        return [pinned]
    return pinned_exchange(pin, standing([*before[::-1], *await reader.forwards(after=pin)]), policy=policy)


async def _taken_at(reader: HistoryReader, message: int, *, until: int) -> int | None:
    """Return the event that took a queued message into the conversation, None where none did up to `until`."""
    after = message
    while page := await reader.forwards(after=after, until=until):
        for item in page:
            if takes(item, message):
                return item.seq
            if isinstance(item.event, MessageSettledEvent) and message in item.event.seqs:
                return None
        after = page[-1].seq
    return None


async def is_undone_in(reader: HistoryReader, seq: int, *, newest: int, tip: int) -> bool:
    """Follow the chain of rewinds from the newest back: each leads to what stood before its point."""
    while newest > seq:
        found = (await reader.at([newest])).get(newest)
        if found is None or not isinstance(found.event, RewindEvent):
            return False
        if newest <= tip:
            tip = found.event.to_seq
            if tip < seq:
                return True
        newest = found.event.previous_seq
    return False
