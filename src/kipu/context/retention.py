"""What a window keeps of the events before its start: pinned exchanges, user messages, messages that still wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kipu.context.adjustment import Adjustment
from kipu.context.assembly import Assembly
from kipu.context.exchange import Exchange
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import TurnStartedEvent, TurnSteeredEvent


def is_queued(item: Item) -> bool:
    """Say whether an item is a message that stands where a turn consumes it."""
    return type(item.event) is UserMessageEvent and item.event.queued


def still_needed(items: Mapping[int, Item], dropped: Iterable[Item], *, anchor: Collection[int]) -> dict[int, Item]:
    """Return the items before the start that may still be shown: kept user messages, and messages that nobody consumed."""
    consumed: set[int] = set()
    for item in dropped:
        if isinstance(item.event, TurnStartedEvent | TurnSteeredEvent):
            consumed.update(item.event.consumes)
    return {seq: item for seq, item in items.items() if seq in anchor or (is_queued(item) and seq not in consumed)}


def change_pins(
    pinned: dict[int, Item],
    wanted: Mapping[int, bool],
    *,
    exchanges: Sequence[Exchange],
    found: Mapping[int, Item],
    anchor: Collection[int],
) -> None:
    """Apply to `pinned` what was pinned and unpinned of the events before the start since the last jump."""
    for exchange in exchanges:
        items = exchange.items()
        if any(wanted.get(item.seq) is False for item in items):
            for item in items:
                pinned.pop(item.seq, None)
    if any(wanted.values()):
        # What was handed over from before the start came with a pin, as part of its exchange, but for the messages that wait
        # and those that a jump kept.
        came = {seq: item for seq, item in found.items() if not is_queued(item) and seq not in anchor}
        pinned.update(came | {seq: item for seq, item in found.items() if wanted.get(seq)})


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
