"""Events to exchanges: where each message stands, and which result belongs to which call.

Everything here follows from the events in the order of their `seq` and from nothing else, so that a window which grew event
by event equals the one that is built at once. What a model may have been shown never changes afterwards: once an assistant
message or a model call comes after it, an exchange is frozen, and what arrives for it later is shown as text of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kipu.context.adjustment import Adjustment, AdjustmentKind
from kipu.context.content import Parts, media_size, result_parts
from kipu.context.exchange import Call, Exchange
from kipu.context.identifier import UniqueIds
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.events.boundary import DamagedEvent
from kipu.events.content import MediaPart
from kipu.events.conversation import (
    AgentMessageEvent,
    MemoryRecalledEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.turn import TurnStartedEvent, TurnSteeredEvent


class Assembly:
    """Build exchanges from items that come in the order of their `seq`.

    `arrivals` are the queued messages known so far, by `seq`; `settled` the messages that must not be shown.
    """

    def __init__(self, policy: WindowPolicy, *, arrivals: Mapping[int, Item], settled: Collection[int]) -> None:
        self.exchanges: list[Exchange] = []
        self.adjustments: list[Adjustment] = []
        self.missing: set[int] = set()
        self.placed: set[int] = set()
        self.model_was_called = False
        self.media_count = 0
        self.media_bytes = 0
        self._policy = policy
        self._text_tokens = policy.text_tokens
        self._arrivals = arrivals
        self._settled = settled
        self._ids = UniqueIds()
        self._current: Exchange | None = None  # the last assistant message, until it is frozen
        self._waiting: dict[str, list[Call]] = {}  # its calls without a result, by our id
        self._closed: dict[str, list[Call]] = {}  # frozen calls that never got one
        self._early: dict[str, list[Item]] = {}  # results that came before their call
        self._answered: set[str] = set()  # ids of this turn whose result is there
        self._handlers: dict[type, Callable[[Item], None]] = {
            UserMessageEvent: self._user_message,
            TurnStartedEvent: self._consume,
            TurnSteeredEvent: self._consume,
            MemoryRecalledEvent: self._memory,
            AgentMessageEvent: self._agent_message,
            ToolCallEvent: self._tool_call,
            ToolResultEvent: self._tool_result,
            ModelCallEvent: self._model_call,
            DamagedEvent: self._damaged,
        }

    @property
    def open_exchange(self) -> Exchange | None:
        """Return the exchange that still waits for results, if there is one."""
        return self._current if self._current is not None and self._current.open_calls else None

    def add(self, item: Item) -> None:
        """Take in the next event; types that a model is not shown change nothing."""
        handler = self._handlers.get(type(item.event))
        if handler is not None:
            handler(item)

    def add_apart(self, items: Iterable[Item]) -> None:
        """Take in events that stand before the window proper, such as pinned exchanges, and close what they leave open."""
        for item in items:
            if isinstance(item.event, UserMessageEvent):
                self._place_user(item, item.seq)
            else:
                self.add(item)
        self._freeze()
        self._end_turn()
        self._closed.clear()

    def cut_at(self, start_seq: int) -> int | None:
        """Return how many exchanges stand before `start_seq` if the others are what they would be without them, else None.

        They are when the cut is at a user message and nothing reaches over it: whatever does has left a note, an
        adjustment, an open call, or a message that is missing.
        """
        if self.adjustments or self.missing or self.media_count or self._settled:
            return None
        if any(self._early.values()) or any(self._closed.values()):
            return None
        cut = next((index for index, exchange in enumerate(self.exchanges) if exchange.seq >= start_seq), 0)
        if not cut or self.exchanges[cut].kind != "user" or self.exchanges[cut].seq != start_seq:
            return None
        if self._current is not None and self._current.seq < start_seq:
            return None
        return None if any(exchange.notes for exchange in self.exchanges[cut:]) else cut

    def forget(self, count: int, *, model_was_called: bool) -> None:
        """Let go of the first `count` exchanges, as `cut_at` allowed it; `model_was_called` is so since the cut."""
        del self.exchanges[:count]
        self.model_was_called = model_was_called
        self.placed = {e.message.seq for e in self.exchanges if e.kind == "user" and e.message is not None}
        calls = [call for exchange in self.exchanges for call in exchange.calls]
        self._ids = UniqueIds()
        for call in calls:
            self._ids.take(call.id)
        self._answered.intersection_update([call.event.tool_call_id for call in calls])

    def pending_adjustments(self) -> list[Adjustment]:
        """Return what would be reported if nothing more came: results that still wait for their call."""
        return [self._orphan(item) for items in self._early.values() for item in items]

    # Placing

    def _user_message(self, item: Item) -> None:
        self._place_user(item, item.seq)

    def _consume(self, item: Item) -> None:
        event = item.event
        if isinstance(event, TurnStartedEvent):
            self._end_turn()
        for seq in event.consumes if isinstance(event, TurnStartedEvent | TurnSteeredEvent) else ():
            if seq in self._settled or seq in self.placed or seq >= item.seq:
                continue
            arrival = self._arrivals.get(seq)
            if arrival is None:
                self.missing.add(seq)
            else:
                self._place_user(arrival, item.seq)

    def _place_user(self, item: Item, seq: int) -> None:
        if item.seq in self.placed or item.seq in self._settled:
            return
        self._end_turn()
        self.placed.add(item.seq)
        exchange = Exchange("user", seq, turn_id=item.event.turn_id, message=item, first_seq=seq)
        if isinstance(item.event, UserMessageEvent) and not isinstance(item.event.content, str):
            self._admit_media(exchange, item.seq, parts=item.event.content)
        self._append(exchange)

    def _memory(self, item: Item) -> None:
        if isinstance(item.event, MemoryRecalledEvent) and item.event.facts:
            self._append(Exchange("memory", item.seq, turn_id=item.event.turn_id, message=item, first_seq=item.seq))

    def _append(self, exchange: Exchange) -> None:
        exchange.measure(self._text_tokens)
        self.exchanges.append(exchange)

    # Pairing

    def _agent_message(self, item: Item) -> None:
        current = self._current
        if current is not None and self._is_text_of_open_calls(current, item):
            current.message = item
        else:
            current = self._begin_assistant(item)
            current.message = item
        if isinstance(item.event, AgentMessageEvent) and not isinstance(item.event.content, str):
            self._admit_media(current, item.seq, parts=item.event.content)
        current.measure(self._text_tokens)

    def _is_text_of_open_calls(self, current: Exchange, item: Item) -> bool:
        """Say whether this text was written after the calls of the same answer: nobody can have answered them yet."""
        return (
            current.message is None
            and current.open_calls == len(current.calls)
            and self._is_newest(current)
            and item.event.turn_id is not None
            and item.event.turn_id == current.turn_id
        )

    def _begin_assistant(self, item: Item) -> Exchange:
        self._freeze()
        self._current = Exchange("assistant", item.seq, turn_id=item.event.turn_id, first_seq=item.seq)
        self.exchanges.append(self._current)
        return self._current

    def _tool_call(self, item: Item) -> None:
        event = item.event
        if not isinstance(event, ToolCallEvent):
            return
        current = self._current
        if current is None or not self._joins(current, item):
            current = self._begin_assistant(item)
        call = Call(item, event, self._ids.take(event.tool_call_id))
        if call.id != event.tool_call_id:
            current.note(Adjustment("id_changed", item.seq, f"{event.tool_call_id!r} is shown as {call.id!r}"))
        current.add_call(call)
        self._answered.discard(event.tool_call_id)
        early = self._take_early(item)
        if early is None:
            current.open_calls += 1
            self._waiting.setdefault(event.tool_call_id, []).append(call)
        else:
            current.first_seq = min(current.first_seq, early.seq)
            current.note(Adjustment("result_reordered", early.seq, "it came before its call"))
            self._attach(current, call, result=early)
        current.measure(self._text_tokens)

    def _joins(self, current: Exchange, item: Item) -> bool:
        """Say whether a call belongs to the answer before it: nothing was answered or said since, or calls are still open."""
        turn, other = current.turn_id, item.event.turn_id
        adjacent = self._is_newest(current)
        if not current.calls:
            return adjacent and (turn == other or turn is None or other is None)
        if not current.open_calls:
            return False
        return turn == other and (adjacent or turn is not None)

    def _is_newest(self, current: Exchange) -> bool:
        """Say whether nothing was said since; a late result does not count, which is shown or not by where the window starts."""
        return next(exchange for exchange in reversed(self.exchanges) if exchange.kind != "late") is current

    def _take_early(self, item: Item) -> Item | None:
        event = item.event
        waiting = self._early.get(event.tool_call_id) if isinstance(event, ToolCallEvent) else None
        for index, result in enumerate(waiting or ()):
            if event.turn_id is None or result.event.turn_id in {None, event.turn_id}:
                return waiting.pop(index) if waiting else None
        return None

    def _tool_result(self, item: Item) -> None:
        event = item.event
        if not isinstance(event, ToolResultEvent):
            return
        waiting = self._waiting.get(event.tool_call_id)
        if waiting and self._current is not None:
            call = waiting.pop(0)
            self._current.open_calls -= 1
            self._note_order(self._current, call, item)
            self._attach(self._current, call, result=item)
            self._current.measure(self._text_tokens)
        elif self._closed.get(event.tool_call_id):
            call = self._closed[event.tool_call_id].pop(0)
            late = Exchange("late", item.seq, turn_id=event.turn_id, message=item, first_seq=item.seq)
            late.note(Adjustment("result_late", item.seq, f"the call {call.id!r} was closed before it came"))
            self._admit_media(late, item.seq, parts=result_parts(event))
            self._append(late)
        elif event.tool_call_id in self._answered:
            self._report("duplicate_result_dropped", item.seq, f"{event.tool_call_id!r} has its result already")
        else:
            self._early.setdefault(event.tool_call_id, []).append(item)

    def _note_order(self, current: Exchange, call: Call, item: Item) -> None:
        if self.exchanges[-1] is not current:
            for later in reversed(self.exchanges):
                if later is current:
                    break
                if not any(note.kind == "user_deferred" for note in later.notes):
                    later.note(Adjustment("user_deferred", later.seq, "it is shown after the results of open calls"))
        if current.open_calls and any(other.result is None for other in current.calls[: current.calls.index(call)]):
            current.note(Adjustment("result_reordered", item.seq, "results are shown in the order of their calls"))

    def _attach(self, current: Exchange, call: Call, *, result: Item) -> None:
        call.result = result
        self._answered.add(call.event.tool_call_id)
        if isinstance(result.event, ToolResultEvent) and isinstance(result.event.result, list):
            self._admit_media(current, result.seq, parts=result_parts(result.event))

    def _model_call(self, item: Item) -> None:
        self.model_was_called = True
        self._freeze()

    def _freeze(self) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        current.frozen = True
        for call in current.calls if current.open_calls else ():
            if call.result is None:
                self._closed.setdefault(call.event.tool_call_id, []).append(call)
        self._waiting.clear()

    def _end_turn(self) -> None:
        """Forget what pairs within a turn only; results that never met their call are reported."""
        for items in self._early.values():
            self.adjustments += [self._orphan(item) for item in items]
        self._early.clear()
        if not self._waiting:
            self._answered.clear()

    def _orphan(self, item: Item) -> Adjustment:
        event = item.event
        call_id = event.tool_call_id if isinstance(event, ToolResultEvent) else ""
        return Adjustment("orphan_dropped", item.seq, f"no call {call_id!r} waits for this result")

    # Limits

    def _admit_media(self, exchange: Exchange, seq: int, *, parts: Parts) -> None:
        """Count media in the order of the log: the first ones within the limits are shown, until the window jumps."""
        for index, part in enumerate(parts):
            if not isinstance(part, MediaPart):
                continue
            size = media_size(part)
            if exchange.media_shown is None:
                exchange.media_shown = set()
            exchange.media_count += 1
            exchange.media_bytes += size
            self.media_count += 1
            self.media_bytes += size
            policy = self._policy
            within = self.media_count <= policy.media_max_count and self.media_bytes <= policy.media_max_total_bytes
            if within and size <= policy.media_max_bytes:
                exchange.media_shown.add((seq, index))

    def _damaged(self, item: Item) -> None:
        event = item.event
        self._report("damaged_skipped", item.seq, event.reason if isinstance(event, DamagedEvent) else "")

    def _report(self, kind: AdjustmentKind, seq: int, detail: str) -> None:
        self.adjustments.append(Adjustment(kind, seq, detail))
