"""The smallest unit of a window that is never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kipu.context.adjustment import Adjustment
from kipu.context.item import Item
from kipu.events.conversation import ToolCallEvent

ExchangeKind: TypeAlias = Literal["user", "assistant", "memory", "late"]


@dataclass(slots=True, eq=False)
class Call:
    """One tool call, under an id that is unique in its window, and its first result."""

    item: Item
    event: ToolCallEvent
    id: str
    result: Item | None = None


@dataclass(slots=True, eq=False)
class Exchange:
    """A user message, or an assistant message with all its calls and all their results; or text shown like a user's.

    `seq` is where it stands (a queued message: where it was consumed); `first_seq` is the first event it needs from there.
    """

    kind: ExchangeKind
    seq: int
    turn_id: str | None = None
    message: Item | None = None
    calls: Sequence[Call] = ()  # a list where there are any: most exchanges have none, and there are many
    open_calls: int = 0
    frozen: bool = False
    first_seq: int = 0
    tokens: int = 0
    media_shown: set[tuple[int, int]] | None = None  # (seq, part) within limits; None where there is no media
    media_count: int = 0
    media_bytes: int = 0
    notes: Sequence[Adjustment] = ()

    @property
    def settled(self) -> bool:
        """Say whether no later event can change it."""
        return self.kind != "assistant" or self.frozen or (bool(self.calls) and not self.open_calls)

    @property
    def message_count(self) -> int:
        """Return how many messages it makes where every result is one."""
        return 1 + len(self.calls)

    def add_call(self, call: Call) -> None:
        """Take in one more call."""
        if isinstance(self.calls, list):
            self.calls.append(call)
        else:
            self.calls = [call]

    def note(self, adjustment: Adjustment) -> None:
        """Take in what is shown otherwise than the log has it."""
        self.notes = [*self.notes, adjustment]

    def items(self) -> list[Item]:
        """Return its events in the order of the log."""
        items = [] if self.message is None else [self.message]
        for call in self.calls:
            items.append(call.item)
            if call.result is not None:
                items.append(call.result)
        return sorted(items, key=lambda item: item.seq)

    def measure(self, limit: int) -> None:
        """Set `tokens` to what the exchange costs after texts of more than `limit` tokens are shortened."""
        total = min(self.message.tokens, limit) if self.message is not None else 0
        if self.calls:
            total += min(sum(call.item.tokens for call in self.calls), limit)
            results = sum(call.result.tokens if call.result is not None else CLOSED_TOKENS for call in self.calls)
            total += min(results, max(limit, CLOSED_TOKENS * len(self.calls)))
        self.tokens = total


CLOSED_TOKENS = 24
"""What a synthetic result costs."""
