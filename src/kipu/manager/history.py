"""What one process holds of a session: its row, the tail of its events, and the window over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.context.window import Window
from kipu.errors import SessionNotFoundError
from kipu.events.boundary import NoteEvent, RewindEvent
from kipu.events.event import SessionEvent
from kipu.manager.loader import PAGE, HistoryReader, Opened, item_of, load
from kipu.ports.head import Head, head_from_json, head_to_json
from kipu.ports.store import EventStore
from kipu.session.fold import fold_event
from kipu.session.patch import WINDOW_NOTE

KEPT_EVENTS = 100


class LiveHistory:
    """The projections of one session, moved forward by every event, in order, whoever appended it.

    It never holds anything that is not in the log, but for one thing: a window jump that the next append will record.
    """

    def __init__(self, store: EventStore, opened: Opened, *, policy: WindowPolicy) -> None:
        self._store = store
        self._policy = policy
        self._take(opened)

    def _take(self, opened: Opened) -> None:
        head = opened.head
        self._row: dict[str, Any] = head_to_json(head)
        self._head: Head | None = head
        self.reader = HistoryReader(self._store, opened.spans)
        self.items: list[Item] = opened.items
        self.unrecorded_jump: int | None = None
        anchors = opened.anchors
        self.window = Window(
            self._policy,
            start_seq=head.window_seq,
            instruction=self._anchor(anchors, head.instruction_seq, opened.items),
            summary=self._anchor(anchors, head.compaction_seq, opened.items),
            pinned=[item for seq in head.pins if (item := anchors.get(seq))],
        )
        apart = {head.instruction_seq, head.compaction_seq, *head.pins}
        consumed = [item for seq, item in sorted(anchors.items()) if seq not in apart]
        self._extend([*consumed, *opened.items])

    @staticmethod
    def _anchor(anchors: dict[int, Item], seq: int, items: Iterable[Item]) -> Item | None:
        return anchors.get(seq) or next((item for item in items if item.seq == seq), None) if seq else None

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
        self._take(await load(self._store, head, policy=self._policy))

    async def refresh(self) -> None:
        """Take in what others have appended."""
        while True:
            page = await self._store.read(self._row["session_id"], after=self.last_seq, limit=PAGE)
            if page:
                await self.advance([item_of(stored) for stored in page])
            if len(page) < PAGE:
                return

    async def advance(self, items: Sequence[Item]) -> None:
        """Take in items that follow the last one known; a rewind builds the window anew."""
        for item in items:
            self._row = fold_event(self._row, item.event, tokens=item.tokens)
        self._head = None
        self.items.extend(items)
        if any(isinstance(item.event, RewindEvent) for item in items):
            await self.reload()
            return
        self._extend(items)

    def _extend(self, items: Sequence[Item]) -> None:
        for item in items:
            self.window.extend([item])
            recorded = recorded_jump(item.event)
            if recorded is not None:
                self.unrecorded_jump = None
                if recorded > self.window.start_seq:
                    self.window.jump(recorded)
            start = self.window.overflow()
            if start is not None:
                self.window.jump(start)
                self.unrecorded_jump = start
        self._forget()

    def _forget(self) -> None:
        """Let go of events that neither the window nor `get_recent_events` needs."""
        if len(self.items) <= 2 * KEPT_EVENTS or self.items[len(self.items) // 2].seq >= self.window.start_seq:
            return
        keep_from = min(self.window.start_seq, self.items[-KEPT_EVENTS].seq)
        self.items = [item for item in self.items if item.seq >= keep_from]


def recorded_jump(event: SessionEvent) -> int | None:
    """Return where this event says that the window starts, if it says so."""
    if isinstance(event, NoteEvent) and event.kind == WINDOW_NOTE:
        start = event.data.get("from")
        return start if isinstance(start, int) else None
    return None
