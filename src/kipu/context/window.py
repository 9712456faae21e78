"""The live window of one session: what the model may see, grown event by event (B31–B36, C7–C10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kipu.context.adjustment import Adjustment
from kipu.context.assembly import Assembly
from kipu.context.boundary import BOUNDARY_EVENTS, Boundaries, recorded_start, recorded_users
from kipu.context.content import shown_blobs
from kipu.context.exchange import Exchange
from kipu.context.item import Item
from kipu.context.log_view import standing, undone_anchor, undone_ranges
from kipu.context.policy import WindowPolicy
from kipu.context.rendering import Rendering
from kipu.context.retention import is_queued, limit_pins, still_needed
from kipu.context.selection import Room, Selection
from kipu.context.shape import Reader
from kipu.context.view import WindowView
from kipu.events.boundary import RewindEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.turn import MessageSettledEvent, TurnStartedEvent, TurnSteeredEvent
from kipu.session.branch import is_undone

_SAID = frozenset({UserMessageEvent, AgentMessageEvent, ToolCallEvent, ToolResultEvent})
"""The types of event that are part of the conversation, and nothing else unless they are pinned: most of a log."""
_TAKING = (TurnStartedEvent, TurnSteeredEvent)
_NOTHING: Mapping[int, Sequence[Item]] = {}


class Window:
    """Show the suffix of one log that starts at `start_seq`, with what stands before it.

    Its state follows from the events given and the last jump: not from how they were divided among calls. Between jumps
    the messages only grow at their end (C9). `reload_from` is set when a rewind led to before the last jump: the window
    is valid, but whoever holds it should build it anew from that `seq`.
    """

    def __init__(
        self,
        policy: WindowPolicy,
        *,
        start_seq: int = 0,
        recorded_at: int = 0,
        users: Sequence[int] = (),
        instruction: Item | None = None,
        summary: Item | None = None,
        pinned: Mapping[int, Sequence[Item]] = _NOTHING,
        pins: Collection[int] = (),
        pinned_at: int = 0,
    ) -> None:
        self.policy = policy
        self.start_seq = start_seq
        self.last_seq = 0
        self.reload_from: int | None = None
        self._boundaries = Boundaries(
            instruction,
            summary,
            jumped_at=recorded_at,
            pinned_at=max(pinned_at, recorded_at),
            pins_then=frozenset(pins).union(pinned),
        )
        self._pinned = dict(pinned)  # each pin before the start with its exchange
        self._brought: dict[int, Sequence[Item]] = {}  # those asked for since the last jump
        self._anchor = tuple(seq for seq in users if seq < start_seq)  # user messages before the start that are kept
        self._anchored_at = recorded_at  # the event that said so
        self._items: list[Item] = []
        self._seen: set[int] = set()
        self._earlier: dict[int, Item] = {}  # events before the start that are needed in it
        self._build()

    # Growing

    def extend(self, items: Iterable[Item]) -> None:
        """Take in events. New ones cost what they are; one from before, which was missing, costs the window once."""
        stale = False
        for item in items:
            if item.seq in self._seen:
                continue
            self._seen.add(item.seq)
            if item.seq < self.start_seq:
                self._earlier[item.seq] = item
                stale = True
                continue
            stale = stale or item.seq < self.last_seq
            self.last_seq = max(self.last_seq, item.seq)
            self._items.append(item)
            stale = stale or self._apply(item)
        if stale:
            self._items.sort(key=lambda item: item.seq)
            self._rebuild()

    def _rebuild(self) -> None:
        """Meet all events again; each jump recorded among them leaves fewer."""
        while True:
            self._build()
            if not any(self._replay(item) for item in standing(self._items)):
                return

    def _replay(self, item: Item) -> bool:
        return not isinstance(item.event, RewindEvent) and self._apply(item)

    def _build(self) -> None:
        """Begin with what stands before the first event: pinned exchanges and user messages that a jump kept."""
        ranges = undone_ranges(self._items)
        self._arrivals = {seq: item for seq, item in self._earlier.items() if is_queued(item)}
        self._settled: set[int] = set()
        for item in self._items:
            if isinstance(item.event, MessageSettledEvent):
                self._settled.update(item.event.seqs)
        self._assembly = Assembly(self.policy, arrivals=self._arrivals, settled=self._settled)
        self._boundaries.forget()
        pinned = {item.seq: item for items in self._pinned.values() for item in items}
        pins = [item for seq, item in sorted(pinned.items()) if seq < self.start_seq and not is_undone(seq, ranges)]
        self._assembly.add_apart(pins)
        limit_pins(self._assembly, self.policy)
        before = {**pinned, **self._earlier}  # after opening, a kept message may be at hand for being pinned
        kept = [before[seq] for seq in self._anchor if seq in before and not is_undone(seq, ranges)]
        self._assembly.add_apart(kept)
        self._apart = len(self._assembly.exchanges)
        self._room = Room.beside(self._assembly.exchanges, self.policy)
        self._has_lead = self._apart > 0 and bool(kept)
        self._lead: list[Exchange] = []  # dropped before the first user message; pins in it outlive that
        bounds = self._boundaries
        last_change = max(self.start_seq - 1, bounds.jumped_at, *(item.seq for item in bounds.in_effect()))
        self.reload_from = undone_anchor(self._items, ranges, last_change=last_change, known=self.reload_from)
        self._view = WindowView()

    def _apply(self, item: Item) -> bool:
        """Apply the next event; say whether it changed what was there before, so that all must be built again."""
        event = item.event
        if type(event) in _SAID and not (isinstance(event, ToolResultEvent) and event.pinned):
            return self._say(item)
        if isinstance(event, RewindEvent):
            return True
        if isinstance(event, MessageSettledEvent):
            self._settled.update(event.seqs)
            return not self._assembly.placed.isdisjoint(event.seqs)
        start = recorded_start(event)
        if start is not None and self.start_seq < start <= item.seq:
            self._move(start, users=recorded_users(event), at_seq=item.seq)
            return True
        if start == self.start_seq and self._keeps_other_users(item):
            return True
        if type(event) in BOUNDARY_EVENTS:
            before = self._boundaries.first_instruction
            self._boundaries.meet(item, start_seq=self.start_seq, was_shown=self._was_shown())
            if self._boundaries.first_instruction is not before:
                self._view = WindowView()
        return self._say(item)

    def _say(self, item: Item) -> bool:
        """Add what is part of the conversation; it changes nothing that was there before."""
        if is_queued(item):
            self._arrivals[item.seq] = item
            return False
        self._assembly.add(item)
        if not self._has_lead:
            self._drop_lead()
        return False

    def _keeps_other_users(self, item: Item) -> bool:
        """Take over what the last jump kept, as recorded; say whether that is news, as it is after opening."""
        users = recorded_users(item.event)
        if users is None or item.seq <= self._anchored_at:
            return False
        self._anchored_at = item.seq
        users = tuple(seq for seq in users if seq < self.start_seq)
        is_news = users != self._anchor
        self._anchor = users
        return is_news

    def _was_shown(self) -> bool:
        exchanges = self._assembly.exchanges[self._apart :]
        return self._assembly.model_was_called or any(exchange.kind == "assistant" for exchange in exchanges)

    def _drop_lead(self) -> None:
        """Start with a user message once there is one (A32): what stands before it is an answer to nothing."""
        exchanges = self._assembly.exchanges
        if len(exchanges) <= self._apart or exchanges[-1].kind not in {"user", "memory"}:
            return
        self._has_lead = True
        lead = next(i for i in range(self._apart, len(exchanges)) if exchanges[i].kind in {"user", "memory"})
        for exchange in exchanges[self._apart : lead]:
            self._assembly.adjustments.append(
                Adjustment("lead_dropped", exchange.seq, "it stands before any user message")
            )
        if lead > self._apart:
            self._lead = exchanges[self._apart : lead]
            del exchanges[self._apart : lead]
            self._view = WindowView()

    # Jumping

    def overflow(self) -> int | None:
        """Return the seq where the window must start now, or None while it may stay as it is.

        The answer is the present start when something waits that is worth a jump by itself, such as a new instruction.
        """
        bounds = self._boundaries
        if bounds.next_summary is None and not bounds.wants_jump and not self._is_over():
            return None
        wants_jump = bounds.wants_jump or bounds.next_summary is not None
        exchanges = self._assembly.exchanges[self._apart :]
        if not exchanges:
            return max(self.start_seq, 1) if wants_jump else None
        present = max(self.start_seq, (self._lead or exchanges)[0].first_seq)
        pins = sum(exchange.tokens for exchange in self._assembly.exchanges[: self._apart])
        pins += sum(exchange.tokens for exchange in exchanges if bounds.is_pinned(exchange))
        share = int(self.policy.max_tokens * self.policy.pin_share)
        selection = Selection(
            self.policy,
            exchanges,
            fixed_tokens=bounds.next_tokens + min(pins, share),
            open_exchange=self._assembly.open_exchange,
            room=self._room,
            lead=self._lead,
        )
        index = None
        if bounds.next_summary is not None:
            index = selection.from_seq(getattr(bounds.next_summary.event, "first_kept_seq", 0))
        elif self._is_over():
            index = selection.low_water(after_seq=bounds.consolidated_seq)
        start = exchanges[index].first_seq if index else present
        return start if start > present else present if wants_jump else None

    def cut(self, *, keep_share: float) -> int | None:
        """Return the seq from which on at most `keep_share` of every bound is in use, None where nothing lies before it.

        Where everything is within the share already, it is a place within the newest turn: somebody asked for less. A summary
        of what lies before may stand in its place: no exchange is cut, and none that is open is left behind.
        """
        exchanges = self._assembly.exchanges[self._apart :]
        if not exchanges:
            return None
        selection = Selection(
            replace(self.policy, low_water=keep_share),
            exchanges,
            fixed_tokens=self._boundaries.next_tokens,
            open_exchange=self._assembly.open_exchange,
            room=self._room,
            lead=self._lead,
        )
        index = selection.low_water(after_seq=self._boundaries.consolidated_seq) or selection.within_newest_turn()
        return exchanges[index].first_seq if index else None

    def tokens_before(self, start_seq: int) -> int:
        """Return what a summary that goes on at `start_seq` would stand for, the summary before it included."""
        summary = self._boundaries.summary
        exchanges = self._assembly.exchanges[self._apart :]
        earlier = sum(exchange.tokens for exchange in exchanges if exchange.seq < start_seq)
        return earlier + (summary.tokens if summary is not None else 0)

    def _is_over(self) -> bool:
        room, assembly = self._room, self._assembly
        tokens, message_count = self._view.totals(assembly.exchanges)
        return (
            tokens + self._boundaries.tokens > self.policy.max_tokens
            or message_count - room.taken_messages > room.messages
            or assembly.media_count - room.taken_media > room.media_count
            or assembly.media_bytes - room.taken_bytes > room.media_bytes
        )

    def jump_record(self, start_seq: int) -> dict[str, Any]:
        """Return what a `model_call` or note says about a jump: its start, and the user messages it keeps from before."""
        return {"from": start_seq, "user": list(self._users_before(start_seq))}

    def jump(self, start_seq: int) -> None:
        """Start at `start_seq`, forgetting what lies before, and let everything take effect that waited for a jump."""
        start_seq = max(start_seq, self.start_seq)
        count = self._droppable(start_seq)
        self._move(start_seq, users=None, at_seq=self.last_seq)
        if count is None:
            self._rebuild()
        else:
            self._drop(count)

    def _droppable(self, start_seq: int) -> int | None:
        """Return how many exchanges a jump lets go of, if that is all it does: meeting every event again costs a hundredfold."""
        if self._apart or self._anchor or self._pinned or not self._has_lead or not self._boundaries.is_quiet:
            return None
        count = self._assembly.cut_at(start_seq)
        kept = self._assembly.exchanges[count:]
        placed = {exchange.message.seq for exchange in kept if exchange.message is not None}
        for item in self._items if count is not None else ():
            event = item.event
            if type(event) in _SAID:
                continue
            if isinstance(event, RewindEvent):
                return None
            takes = event.consumes if isinstance(event, _TAKING) else ()
            if item.seq >= start_seq and not placed.issuperset(takes):
                return None
        return count

    def _drop(self, count: int) -> None:
        """Let go of the first exchanges after a move to where the next one starts."""
        if not self._view.forget(self._assembly.exchanges, count):
            self._view = WindowView()
        self._assembly.forget(count, model_was_called=any(type(item.event) is ModelCallEvent for item in self._items))
        gone = [seq for seq in self._arrivals if seq < self.start_seq and seq not in self._earlier]
        for seq in gone:
            del self._arrivals[seq]

    def _users_before(self, start_seq: int) -> tuple[int, ...]:
        """Return the newest user messages before `start_seq` when no user message stands there (A33)."""
        exchanges = self._assembly.exchanges[self._apart :]
        after = next((exchange for exchange in exchanges if exchange.seq >= start_seq), None)
        if after is None or after.kind == "user":
            return ()
        users = [exchange for exchange in exchanges if exchange.kind == "user" and exchange.seq < start_seq]
        if not users:
            return self._anchor
        return tuple(e.message.seq for e in users if e.seq == users[-1].seq and e.message is not None)

    def _move(self, start_seq: int, *, users: tuple[int, ...] | None, at_seq: int) -> None:
        exchanges = self._assembly.exchanges
        dropped = [item for item in self._items if item.seq < start_seq]
        users = self._users_before(start_seq) if users is None else users
        self._anchor = tuple(seq for seq in users if seq < start_seq)
        self._anchored_at = at_seq
        self._pinned.update(self._boundaries.left_behind([*self._lead, *exchanges[self._apart :]], start_seq=start_seq))
        for seq, on in self._boundaries.earlier_pins.items():
            if not on:
                self._pinned.pop(seq, None)
            elif self._brought.get(seq):
                self._pinned[seq] = self._brought[seq]
        self._brought.clear()
        self._earlier.update({item.seq: item for item in dropped})
        self._earlier = still_needed(self._earlier, dropped, anchor=self._anchor)
        self._boundaries.take_effect(at_seq=at_seq)
        self.start_seq = start_seq
        self._items = [item for item in self._items if item.seq >= start_seq]
        self._seen = {item.seq for item in self._items}.union(self._earlier)

    # Reading

    @property
    def tokens(self) -> int:
        """Return what the window costs, instruction, summary and pins included."""
        return self._boundaries.tokens + self._view.totals(self._assembly.exchanges)[0]

    @property
    def message_count(self) -> int:
        """Return the number of messages where every tool result is one, without the instruction."""
        return self._view.totals(self._assembly.exchanges)[1]

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the seqs before the start that the window needs and was not given: `extend` takes them at any time.

        They are messages that a turn in the window consumed, and user messages that a jump kept.
        """
        if not (self._assembly.missing or self._anchor):
            return ()
        wanted = (self._assembly.missing - self._settled).union(self._anchor)
        known = self._earlier.keys() | self._pinned.keys()
        return tuple(sorted(seq for seq in wanted if 0 < seq < self.start_seq and seq not in known))

    @property
    def missing_pins(self) -> tuple[int, ...]:
        """Return the events before the start that were pinned since it, and whose exchanges were not given: `bring` takes them."""
        earlier = self._boundaries.earlier_pins
        return tuple(sorted(seq for seq, on in earlier.items() if on and seq not in self._brought)) if earlier else ()

    def bring(self, pin: int, exchange: Sequence[Item]) -> None:
        """Take in the exchange of an event that was pinned; the next jump shows it. It is empty where nothing is to be shown."""
        self._brought[pin] = exchange

    def messages(
        self,
        target: str = "neutral",
        *,
        provider: str | None = None,
        model: str | None = None,
        media: Mapping[str, bytes] | None = None,
        shared: bool = False,
    ) -> Rendering:
        """Return the window as `target` takes it, with what was adjusted for that. The log is not touched (C8).

        The messages are copies, which the caller may change (B34); `shared` ones are the window's own, for who only reads.

        `provider` and `model` are who will read it: opaque reasoning goes to whoever made it and to nobody else. `media`
        gives the bytes of blobs; media whose bytes are not given are shown as text, except to the neutral target.

        Raises:
            InvalidQueryError: there is no such target.
        """
        lost = [
            Adjustment("message_missing", seq, "a turn consumed it")
            for seq in sorted(self._assembly.missing - self._settled)
        ]
        before = [*self._assembly.adjustments, *self._assembly.pending_adjustments(), *lost]
        reader = Reader(self.policy, provider, model, media)
        head = (self._boundaries.shown_instruction, self._boundaries.summary)
        return self._view.render(
            target, reader, exchanges=self._assembly.exchanges, head=head, adjustments=before, shared=shared
        )

    def digest(self, *, provider: str | None = None, model: str | None = None) -> str:
        """Return the digest of the neutral messages, as `window_digest` gives it (C6), for the price of what is new in them."""
        reader = Reader(self.policy, provider, model)
        head = (self._boundaries.shown_instruction, self._boundaries.summary)
        return self._view.digest(reader, exchanges=self._assembly.exchanges, head=head)

    def media(self) -> tuple[str, ...]:
        """Return the digests of the blobs that a target would be shown, each once, in their order."""
        found: dict[str, None] = {}
        if not self._assembly.media_count:  # asked for on every turn, and most sessions have none
            return ()
        for exchange in self._assembly.exchanges:
            for digest in shown_blobs(exchange):
                found.setdefault(digest)
        return tuple(found)
