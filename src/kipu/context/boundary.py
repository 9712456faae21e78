"""What takes effect with the next jump of a window only: a new instruction, a summary, pins, a consolidation boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kipu.context.exchange import Exchange
from kipu.context.item import Item
from kipu.events.boundary import CompactionEvent, ConsolidationEvent, EventPinnedEvent, NoteEvent
from kipu.events.conversation import InstructionEvent, ModelCallEvent, ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.session.window_start import recorded_in

WINDOW_NOTE = "kipu.window"
"""Kind of the note that records a jump: data {"from": seq, "user": [seqs kept from before it]}."""

BOUNDARY_EVENTS = frozenset({InstructionEvent, CompactionEvent, ConsolidationEvent, EventPinnedEvent, ToolResultEvent})
"""The types of event that `Boundaries.meet` knows."""


@dataclass(slots=True)
class Boundaries:
    """Hold what is in effect since the last jump, and what waits for the next.

    Events up to `jumped_at` have taken effect already; meeting them again, when a window is built anew, changes nothing.
    """

    instruction: Item | None = None
    summary: Item | None = None
    jumped_at: int = 0
    first_instruction: Item | None = None  # came before anything was shown, and so without a jump
    next_instruction: Item | None = None
    next_summary: Item | None = None
    consolidated_seq: int = 0
    # The pins in effect at an event, wherever they were made: no rewind takes one back.
    pinned_at: int = 0
    pins_then: frozenset[int] = frozenset()
    pins: set[int] = field(default_factory=set)
    earlier_pins: dict[int, bool] = field(default_factory=dict)  # of events before the start, asked for since the jump

    def forget(self) -> None:
        """Drop what waits, before all events are met again."""
        self.first_instruction = self.next_instruction = self.next_summary = None
        self.consolidated_seq = 0
        self.pins = set(self.pins_then)
        self.earlier_pins.clear()

    @property
    def shown_instruction(self) -> Item | None:
        """Return the instruction that is in effect."""
        return self.first_instruction or self.instruction

    def meet(self, item: Item, *, start_seq: int, was_shown: bool) -> None:
        """Note an event that will take effect with the next jump; an instruction at once while nothing was shown."""
        event = item.event
        if isinstance(event, InstructionEvent):
            if item.seq > max(self.jumped_at, self.instruction.seq if self.instruction else 0):
                self.first_instruction = self.first_instruction if was_shown else item
                self.next_instruction = item if was_shown else None
        elif isinstance(event, CompactionEvent):
            known = max(self.jumped_at, self.summary.seq if self.summary else 0)
            if item.seq > known and event.summary.strip():
                self.next_summary = item
        elif isinstance(event, ConsolidationEvent):
            self.consolidated_seq = max(self.consolidated_seq, event.to_seq)
        elif item.seq <= self.pinned_at:
            return
        elif isinstance(event, EventPinnedEvent):
            self._pin(event, start_seq=start_seq)
        elif isinstance(event, ToolResultEvent) and event.pinned:
            self.pins.add(item.seq)

    def _pin(self, event: EventPinnedEvent, *, start_seq: int) -> None:
        for seq in event.seqs:
            if seq < start_seq:
                self.earlier_pins[seq] = event.on
            if event.on:
                self.pins.add(seq)
            else:
                self.pins.discard(seq)

    @property
    def is_quiet(self) -> bool:
        """Say whether a jump lets nothing take effect and keeps nothing from before it."""
        waits = self.next_instruction or self.next_summary or self.earlier_pins
        return not (waits or self.pins or self.consolidated_seq)

    @property
    def wants_jump(self) -> bool:
        """Say whether something waits that must not wait for the next overflow."""
        return self.next_instruction is not None or bool(self.earlier_pins)

    def take_effect(self, *, at_seq: int) -> None:
        """Let everything that waits be in effect; a jump at `at_seq` has been recorded."""
        self.instruction = self.next_instruction or self.shown_instruction
        self.summary = self.next_summary or self.summary
        self.first_instruction = self.next_instruction = self.next_summary = None
        self.earlier_pins.clear()
        self.jumped_at = max(self.jumped_at, at_seq)
        self.pinned_at = max(self.pinned_at, at_seq)
        self.pins_then = frozenset(self.pins)

    def left_behind(self, exchanges: Sequence[Exchange], *, start_seq: int) -> dict[int, list[Item]]:
        """Return what is pinned of what a jump to `start_seq` leaves behind, each with the items of its exchange."""
        return {
            item.seq: exchange.items()
            for exchange in exchanges
            if exchange.seq < start_seq and exchange.kind != "late" and self.is_pinned(exchange)
            for item in exchange.items()
            if item.seq in self.pins and item.seq < start_seq
        }

    def is_pinned(self, exchange: Exchange) -> bool:
        """Say whether any event of the exchange is pinned: a pin keeps its whole exchange (B36)."""
        return bool(self.pins) and any(item.seq in self.pins for item in exchange.items())

    def in_effect(self) -> list[Item]:
        """Return the instruction and the summary that the last jump let be in effect, as far as there are any."""
        return [item for item in (self.instruction, self.summary) if item is not None]

    @property
    def tokens(self) -> int:
        """Return what the instruction and the summary cost."""
        instruction, summary = self.shown_instruction, self.summary
        return (instruction.tokens if instruction else 0) + (summary.tokens if summary else 0)

    @property
    def next_tokens(self) -> int:
        """Return what the instruction and the summary cost from the next jump on."""
        instruction = self.next_instruction or self.shown_instruction
        summary = self.next_summary or self.summary
        return (instruction.tokens if instruction else 0) + (summary.tokens if summary else 0)


def recorded_start(event: SessionEvent) -> int | None:
    """Return where a window starts according to an event that records it, else None."""
    data = _record(event)
    return None if data is None else recorded_in(data, seq=event.seq)


def recorded_users(event: SessionEvent) -> tuple[int, ...] | None:
    """Return the user messages from before the start that a recorded jump keeps; None where it does not say."""
    data = _record(event) or {}
    users = data.get("user")
    if not isinstance(users, list):
        return None
    return tuple(seq for seq in users if isinstance(seq, int) and not isinstance(seq, bool))


def _record(event: SessionEvent) -> dict[str, object] | None:
    if isinstance(event, NoteEvent):
        return event.data if event.kind == WINDOW_NOTE else None
    return event.window if isinstance(event, ModelCallEvent) else None
