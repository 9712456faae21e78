"""Opening a session: its head, its anchors and the tail of its log that the window needs. Never the whole log (C10, B51)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kipu.context.boundary import recorded_start, recorded_users
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.errors import InvalidEventError, SessionNotFoundError
from kipu.events.boundary import CompactionEvent, RewindEvent, SessionInitEvent
from kipu.events.codec import decode, generic_event
from kipu.events.conversation import InstructionEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnStartedEvent, TurnSteeredEvent
from kipu.manager.pins import pins_at, shown_of_pin
from kipu.ports.head import Head
from kipu.ports.store import EventStore, StoredEvent
from kipu.session.branch import Span, lineage

PAGE = 256
# A tail is replayed from the recorded window start, so that the jumps are those that were made (B33); a log that somebody
# filled without windows is not replayed but cut to the budget.
REPLAY_BUDGETS = 4


@dataclass(slots=True)
class Opened:
    """What was read of a session."""

    head: Head
    reader: HistoryReader
    items: list[Item]  # ascending, the tail that the window needs
    start_seq: int  # where the window starts before what came after the record is met
    recorded_at: int  # the event that says so: what stands up to it has taken effect, what comes after is met again
    users: tuple[int, ...]
    instruction: Item | None
    summary: Item | None
    pins: frozenset[int]  # those in effect at `pinned_at`
    pinned_at: int
    pinned: dict[int, list[Item]]  # those from before the start that are shown, with their exchanges


def item_of(stored: StoredEvent) -> Item:
    """Return the decoded event; one that does not validate is kept as a generic event, with the reason (B15, C16)."""
    record = stored.record
    envelope = {
        "seq": stored.seq,
        "event_id": record.event_id,
        "event_type": record.event_type,
        "timestamp": record.timestamp,
        "session_id": stored.session_id,
        "turn_id": record.turn_id,
        "trace_id": record.trace_id,
        "principal": record.principal,
        "v": record.v,
    }
    event: SessionEvent
    try:
        event = decode(envelope, record.body)
    except InvalidEventError as error:
        event = generic_event(envelope, record.body, reason=str(error.data["reason"]))
    return Item(stored.seq, event, record.tokens)


class HistoryReader:
    """Read a session's history across the forks it came from."""

    def __init__(self, store: EventStore, spans: list[Span]) -> None:
        self._store = store
        self._spans = spans

    @classmethod
    async def of(cls, store: EventStore, head: Head) -> HistoryReader:
        """Return a reader for the session of this head."""
        return cls(store, await spans_of(store, head))

    @property
    def spans(self) -> list[Span]:
        """Return where the events are, oldest first."""
        return self._spans

    async def backwards(self, *, until: int, after: int = 0, limit: int = PAGE) -> list[Item]:
        """Return at most `limit` items with after < seq <= until, newest first."""
        try:
            return await self._backwards(until=until, after=after, limit=limit)
        except SessionNotFoundError:
            await self._look_again()
            return await self._backwards(until=until, after=after, limit=limit)

    async def _look_again(self) -> None:
        """Find out anew where the history is: an ancestor was erased after a fork had taken over what it shared (C11)."""
        session_id = self._spans[-1].session_id
        head = await self._store.head(session_id)
        if head is None:
            raise SessionNotFoundError(session_id=session_id)
        self._spans = await spans_of(self._store, head)

    async def _backwards(self, *, until: int, after: int, limit: int) -> list[Item]:
        items: list[Item] = []
        for span in reversed(self._spans):
            # The last span is the session's own log, which grows; the others ended where their child began.
            high = until if span is self._spans[-1] else min(until, span.until)
            low = max(after, span.after)
            if high <= low or len(items) >= limit:
                continue
            wanted = limit - len(items)
            page = await self._store.read(span.session_id, after=low, until=high, limit=wanted, backwards=True)
            items.extend(item_of(stored) for stored in page)
        return items

    async def forwards(self, *, after: int, until: int | None = None, limit: int = PAGE) -> list[Item]:
        """Return at most `limit` items with after < seq <= until, oldest first."""
        return [item_of(stored) for stored in await self.stored(after=after, until=until, limit=limit)]

    async def stored(self, *, after: int, until: int | None = None, limit: int = PAGE) -> list[StoredEvent]:
        """Return at most `limit` events with after < seq <= until as the store has them, oldest first."""
        try:
            return await self._stored(after=after, until=until, limit=limit)
        except SessionNotFoundError:
            await self._look_again()
            return await self._stored(after=after, until=until, limit=limit)

    async def _stored(self, *, after: int, until: int | None, limit: int) -> list[StoredEvent]:
        found: list[StoredEvent] = []
        for span in self._spans:
            last = span is self._spans[-1]
            low = max(after, span.after)
            high = until if last else min(span.until, until) if until is not None else span.until
            if len(found) >= limit or (high is not None and high <= low):
                continue
            found += await self._store.read(span.session_id, after=low, until=high, limit=limit - len(found))
        return found

    async def at(self, seqs: Iterable[int]) -> dict[int, Item]:
        """Return the items of these seqs, those that can be read."""
        found: dict[int, Item] = {}
        for seq in seqs:
            if seq > 0:
                for item in await self.backwards(until=seq, after=seq - 1, limit=1):
                    found[seq] = item
        return found


async def spans_of(store: EventStore, head: Head) -> list[Span]:
    """Return where a session's history is: its ancestors' events up to each fork, then its own (C11).

    Raises:
        SessionNotFoundError: an ancestor is gone.
    """
    ancestors: list[tuple[str, int]] = []
    child, until = head, head.base_seq
    while child.forked_from is not None and until > 0:
        parent = await store.head(child.forked_from)
        if parent is None:
            raise SessionNotFoundError(session_id=child.forked_from)
        if until > parent.base_seq:
            ancestors.append((parent.session_id, until))
        until = min(until, parent.base_seq)
        child = parent
    return lineage(ancestors[::-1], head.session_id, last_seq=max(head.last_seq, head.base_seq))


async def load(store: EventStore, head: Head, *, policy: WindowPolicy) -> Opened:
    """Return what opening this session takes."""
    reader = await HistoryReader.of(store, head)
    tail, is_whole = await _tail(reader, head, policy)
    items = await _with_messages(reader, head, items=tail)
    start, record = _start(tail, head) if is_whole else (tail[0].seq, None)
    known = max(record.seq if record is not None else 0, start - 1)
    pinned_at, pins = pins_at(tail, head, known=known)
    pinned = {
        pin: await shown_of_pin(reader, pin, head=head, start_seq=start, policy=policy)
        for pin in sorted(pins)
        if pin < start
    }
    return Opened(
        head=head,
        reader=reader,
        items=items,
        start_seq=start,
        recorded_at=known,
        users=(recorded_users(record.event) or ()) if record is not None else (),
        instruction=await _anchor(reader, head.instruction_seq, until=known),
        summary=await _anchor(reader, head.compaction_seq, until=known),
        pins=pins,
        pinned_at=pinned_at,
        pinned={pin: exchange for pin, exchange in pinned.items() if exchange},
    )


def _start(tail: Sequence[Item], head: Head) -> tuple[int, Item | None]:
    """Return where the window starts, and the event that recorded it, the newest where several say the same.

    A rewind and the beginning of a fork take a start over: where its own record does not stand, they are it.
    """
    if not head.window_seq:
        return 0, None
    takes_over = None
    for item in reversed(tail):
        if recorded_start(item.event) == head.window_seq:
            return head.window_seq, item
        if takes_over is None and isinstance(item.event, RewindEvent | SessionInitEvent):
            takes_over = item
    return head.window_seq, takes_over


async def _anchor(reader: HistoryReader, newest: int, *, until: int) -> Item | None:
    """Return the instruction or summary that was in effect at `until`: a newer one takes effect when the window meets it."""
    while newest > 0:
        found = (await reader.at([newest])).get(newest)
        if found is None:
            return None
        event = found.event
        if newest <= until and not (isinstance(event, CompactionEvent) and not event.summary.strip()):
            return found
        newest = event.previous_seq if isinstance(event, InstructionEvent | CompactionEvent) else 0
    return None


async def _with_messages(reader: HistoryReader, head: Head, *, items: list[Item]) -> list[Item]:
    """Return the items with the messages that wait, or that were consumed here, wherever they arrived: undone turns too."""
    wanted = set(head.waiting)
    for item in items:
        if isinstance(item.event, TurnStartedEvent | TurnSteeredEvent):
            wanted.update(item.event.consumes)
    found = await reader.at(sorted(wanted - {item.seq for item in items}))
    return sorted([*items, *found.values()]) if found else items


async def _tail(reader: HistoryReader, head: Head, policy: WindowPolicy) -> tuple[list[Item], bool]:
    """Return the newest items, undone ranges left out, and whether they reach back to the recorded window start.

    They do not where the budget is well exceeded before.
    """
    newest_first: list[Item] = []
    until, filled = head.last_seq, (0.0, 0.0)
    floor = max(0, head.window_seq - 1)
    while until > floor:
        if max(filled) > REPLAY_BUDGETS:
            return newest_first[::-1], False
        page = await reader.backwards(until=until, after=floor)
        if not page:
            break
        known = len(newest_first)
        for item in page:
            if item.seq > until:
                continue
            newest_first.append(item)
            until = item.seq - 1
            if isinstance(item.event, RewindEvent):
                until = min(until, item.event.to_seq)
        tokens, messages = budgets_filled(newest_first[known:], policy)
        filled = (filled[0] + tokens, filled[1] + messages)
    return newest_first[::-1], True


def budgets_filled(items: Sequence[Item], policy: WindowPolicy) -> tuple[float, float]:
    """Return how many windows the items fill with tokens, at the most that one shows of each, and how many with messages."""
    limit = policy.text_tokens
    tokens = sum([min(item.tokens, limit) for item in items])
    messages = sum([item.tokens > 0 for item in items])
    return tokens / max(1, policy.max_tokens), messages / max(1, policy.max_messages)
