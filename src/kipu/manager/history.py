"""What one process holds of a session: its row, the tail of its events, and the window over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from kipu.context.boundary import recorded_start
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.window import Window
from kipu.errors import SessionNotFoundError
from kipu.events.boundary import ForkDetachedEvent, NoteEvent, RewindEvent
from kipu.events.conversation import ModelCallEvent
from kipu.events.event import SessionEvent
from kipu.manager.loader import PAGE, REPLAY_BUDGETS, budgets_filled, item_of, load
from kipu.manager.pins import shown_of_pin
from kipu.ports.head import Head, head_from_json, head_to_json
from kipu.ports.store import EventStore
from kipu.session.fold import fold_event
from kipu.session.patch import WINDOW_NOTE

KEPT_EVENTS = 100
_ROOM_TOKENS = 32  # more than what a window adds to a message of its own
_TALK = frozenset(
    {
        "session_init",
        "user_message",
        "agent_message",
        "tool_call",
        "tool_started",
        "tool_result",
        "turn_started",
        "turn_finished",
        "metadata_changed",
    }
)


class LiveHistory:
    """The projections of one session, moved forward by every event, in order, whoever appended it.

    It never holds anything that is not in the log, but for one thing: a window jump that the next append will record.
    """

    def __init__(self, store: EventStore, head: Head, *, policy: WindowPolicy) -> None:
        self._store = store
        self._policy = policy
        self._row: dict[str, Any] = head_to_json(head)
        self._head: Head | None = head

    @classmethod
    async def open(cls, store: EventStore, head: Head, *, policy: WindowPolicy) -> LiveHistory:
        """Return the history of the session with this head."""
        history = cls(store, head, policy=policy)
        await history._take(head)
        return history

    async def _take(self, head: Head) -> None:
        opened = await load(self._store, head, policy=self._policy)
        self._row, self._head = head_to_json(head), head
        self.reader = opened.reader
        self.items = opened.items
        self.unrecorded_jump: dict[str, Any] | None = None
        self.window = Window(
            self._policy,
            start_seq=opened.start_seq,
            recorded_at=opened.recorded_at,
            users=opened.users,
            instruction=opened.instruction,
            summary=opened.summary,
            pins=opened.pins,
            pinned_at=opened.pinned_at,
            pinned=opened.pinned,
        )
        self._waiting = deque(opened.items)
        self._sought: set[int] = set()
        self._stale = False
        self._recorded_at = opened.recorded_at
        self._grow()
        await self.settle()

    @property
    def head(self) -> Head:
        """Return the head as these events make it."""
        if self._head is None:
            self._head = head_from_json(self._row)
        return self._head

    @property
    def row(self) -> dict[str, Any]:
        """Return the head as a row of plain values, without building a `Head`."""
        return self._row

    @property
    def owner(self) -> str:
        """Return who owns the session."""
        return str(self._row.get("owner", ""))

    @property
    def tenant(self) -> str:
        """Return the tenant it belongs to."""
        return str(self._row.get("tenant", ""))

    @property
    def members(self) -> Mapping[str, str] | None:
        """Return with whom it is shared, and in which role, as far as this process knows."""
        members: Mapping[str, str] | None = self._row.get("members")
        return members

    @property
    def last_seq(self) -> int:
        """Return the seq of the newest event known here."""
        return int(self._row["last_seq"])

    @property
    def policy(self) -> WindowPolicy:
        """Return the policy of the window."""
        return self._policy

    async def set_policy(self, policy: WindowPolicy) -> None:
        """Show the model another budget from now on: the window is built anew."""
        self._policy = policy
        await self.reload()

    async def reload(self) -> None:
        """Read the session anew, as after opening it."""
        head = await self._store.head(self._row["session_id"])
        if head is None:
            raise SessionNotFoundError(session_id=self._row["session_id"])
        await self._take(head)

    async def refresh(self) -> None:
        """Take in what others have appended."""
        while True:
            page = await self._store.read(self._row["session_id"], after=self.last_seq, limit=PAGE)
            if page:
                self.advance([item_of(stored) for stored in page])
            await self.settle()
            if len(page) < PAGE:
                return

    def advance(self, items: Sequence[Item], *, row: dict[str, Any] | None = None) -> None:
        """Take in items that follow the last one known. What must be read for that is left to `settle`.

        It awaits nothing, so that no cancellation can part memory from the log. `row` is the head row after the items, where
        the caller knows it already.
        """
        if row is None:
            row = self._row
            for item in items:
                row = fold_event(row, item.event, tokens=item.tokens)
        self._row, self._head = row, None
        self.items.extend(items)
        self._waiting.extend(items)
        for item in items:
            self._stale = self._stale or is_read_anew(item.event)
        # Whoever opens the session next does not read so much at once, and finds its window by what is read.
        if len(items) > 1 and max(budgets_filled(items, self._policy)) > REPLAY_BUDGETS - 2:
            self._stale = True
        self._grow()

    @property
    def settled(self) -> bool:
        """Return True while the window holds all that is known here."""
        return not self._stale and not self._waiting

    async def settle(self) -> None:
        """Read what the window needs of earlier events, and build it anew after a rewind."""
        while self._stale or self._waiting:
            if self._stale:
                await self.reload()
                return
            missing = self._missing()
            found = await self.reader.at(missing)
            self._sought.update(missing)
            self.window.extend(found[seq] for seq in sorted(found))
            start = self.window.start_seq
            for pin in self.window.missing_pins:
                exchange = await shown_of_pin(self.reader, pin, head=self.head, start_seq=start, policy=self._policy)
                self.window.bring(pin, exchange)
            self._grow()

    def _missing(self) -> list[int]:
        """Return the earlier events that the window lacks and that were not sought yet: some may be damaged."""
        missing = self.window.missing
        return [seq for seq in missing if seq not in self._sought] if missing else []

    def _grow(self) -> None:
        """Grow the window one event at a time, so that it jumps where it jumped when these events were appended."""
        if len(self._waiting) > 1 and not self._stale and self._jumps_nowhere():
            # The window is the same however its items are divided, and opening a session takes a third less this way.
            last = self._waiting[-1]
            self.window.extend(self._waiting)
            if any(records_window(item.event) for item in self._waiting):
                self.unrecorded_jump = None
            self._waiting = deque([last])
        while self._waiting and not self._stale:
            item = self._waiting.popleft()
            self.window.extend([item])
            if records_window(item.event):
                self.unrecorded_jump = None
            if self._missing() or self.window.missing_pins:
                # Whether it jumps depends on what is missing: this one is looked at again when that was read.
                self._waiting.appendleft(item)
                return
            if item.seq >= self._recorded_at:  # what jumped before it was another window, with other pins
                self._judge()
        self._forget()

    def _jumps_nowhere(self) -> bool:
        """Return True when none of the events that wait can move the window's start: they are talk, and fit with room."""
        tokens = sum(item.tokens + _ROOM_TOKENS for item in self._waiting)
        if self.window.tokens + tokens > self._policy.max_tokens:
            return False
        if self.window.message_count + len(self._waiting) > self._policy.max_messages:
            return False
        return all(_is_talk(item.event, start_seq=self.window.start_seq) for item in self._waiting)

    def _judge(self) -> None:
        """Jump until the window is within its bounds: what a jump left behind may be pinned, and take room that it counted on."""
        while (start := self.window.overflow()) is not None:
            self.unrecorded_jump = self.window.jump_record(start)
            self.window.jump(start)

    def _forget(self) -> None:
        """Let go of events that neither the window nor `get_recent_events` needs."""
        if len(self.items) <= 2 * KEPT_EVENTS or self.items[len(self.items) // 2].seq >= self.window.start_seq:
            return
        keep_from = min(self.window.start_seq, self.items[-KEPT_EVENTS].seq)
        self.items = [item for item in self.items if item.seq >= keep_from]


def _is_talk(event: SessionEvent, *, start_seq: int) -> bool:
    if event.event_type in _TALK:
        return not isinstance(event.__dict__.get("content"), list)
    start = recorded_start(event)
    return records_window(event) and (start is None or start <= start_seq)


def is_read_anew(event: SessionEvent) -> bool:
    """Return True when the session is read anew once this has happened: what is undone, or stands elsewhere now, is in no tail."""
    return isinstance(event, RewindEvent | ForkDetachedEvent)


def records_window(event: SessionEvent) -> bool:
    """Return True when the event says where the window starts."""
    kind = type(event)  # asked of every event, of which few are either
    return kind is ModelCallEvent or (isinstance(event, NoteEvent) and event.kind == WINDOW_NOTE)
