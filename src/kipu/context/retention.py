"""What a window keeps of the events before its start: pinned exchanges, user messages, messages that still wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kipu.context.adjustment import Adjustment
from kipu.context.assembly import Assembly
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import TurnStartedEvent, TurnSteeredEvent


def is_queued(item: Item) -> bool:
    """Say whether an item is a message that stands where a turn consumes it."""
    return type(item.event) is UserMessageEvent and item.event.queued


def takes(item: Item, message: int) -> bool:
    """Say whether an event took a queued message into the conversation."""
    return isinstance(item.event, TurnStartedEvent | TurnSteeredEvent) and message in item.event.consumes


def still_needed(items: Mapping[int, Item], dropped: Iterable[Item], *, anchor: Collection[int]) -> dict[int, Item]:
    """Return the items before the start that may still be shown: kept user messages, and messages that nobody consumed."""
    consumed: set[int] = set()
    for item in dropped:
        if isinstance(item.event, TurnStartedEvent | TurnSteeredEvent):
            consumed.update(item.event.consumes)
    return {seq: item for seq, item in items.items() if seq in anchor or (is_queued(item) and seq not in consumed)}


def pinned_exchange(seq: int, items: Sequence[Item], *, policy: WindowPolicy) -> list[Item]:
    """Return the items of the exchange that event `seq` is in, put together as a window does it; none where it is in none.

    `items` are what stands around it. What people and models said beside it is not pinned with it, and results are found
    behind a message that came between. A result that came too late for its call is none: apart from it, it answers nothing.
    """
    # Each message that a turn took parts what came before from what came after, whether or not it is among the items.
    taken = {
        s for item in items if isinstance(item.event, TurnStartedEvent | TurnSteeredEvent) for s in item.event.consumes
    }
    assembly = Assembly(policy, arrivals={s: Item(s, UserMessageEvent(content=""), 0) for s in taken}, settled=())
    for item in items:
        if not is_queued(item):
            assembly.add(item)
    whole = (exchange.items() for exchange in assembly.exchanges if exchange.kind != "late")
    return next((found for found in whole if any(item.seq == seq for item in found)), [])


def limit_pins(assembly: Assembly, policy: WindowPolicy) -> None:
    """Keep the newest pinned exchanges within their share, and report the others (B36)."""
    left = int(policy.max_tokens * policy.pin_share)
    kept = []
    for exchange in reversed(assembly.exchanges):
        left -= exchange.tokens
        if left >= 0:
            kept.append(exchange)
        else:
            assembly.media_count -= exchange.media_count
            assembly.media_bytes -= exchange.media_bytes
            if exchange.kind == "user" and exchange.message is not None:
                assembly.placed.discard(exchange.message.seq)  # a jump may keep it as the newest one all the same (A33)
            assembly.adjustments.append(Adjustment("pin_dropped", exchange.seq, "pins take more than their share"))
    assembly.exchanges[:] = kept[::-1]
