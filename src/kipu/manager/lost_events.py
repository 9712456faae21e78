"""Placeholders for records that a store has lost, so that a copy of the session has no gap (C16)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

from kipu.events import ids
from kipu.events.boundary import DamagedEvent, ForkPoint, SessionInitEvent
from kipu.events.codec import encode_body
from kipu.ports.head import Head
from kipu.ports.store import Damage, EventStore, Record, StoredEvent

_FIRST_PAGE, _MAX_PAGE = 64, 512
_PAGE_BYTES = 4 << 20


class Kept(NamedTuple):
    """An event as it is read, or the placeholder for a lost one."""

    stored: StoredEvent
    lost: bool = False


class WholeHistory:
    """Read a session's own events without gaps: where the store has nothing, a `damaged` event stands."""

    def __init__(self, store: EventStore, head: Head, *, after: int = 0) -> None:
        self._store = store
        self._head = head
        self._after = max(after, head.base_seq)
        self._last_time = head.created_at or "1970-01-01T00:00:00.000000Z"
        self._damages: list[Damage] | None = None

    async def pages(self) -> AsyncIterator[list[Kept]]:
        """Yield every event behind `after` up to the head's last, in pages that fit into memory however big the events are."""
        session_id, last = self._head.session_id, self._head.last_seq
        after, limit = self._after, _FIRST_PAGE
        while after < last:
            read = await self._store.read(session_id, after=after, until=last, limit=limit)
            page: list[Kept] = []
            for stored in read:
                page += [await self._placeholder(seq) for seq in range(after + 1, stored.seq)]
                page.append(Kept(stored))
                self._last_time = stored.record.timestamp
                after = stored.seq
            if not read:
                until = min(last, after + _MAX_PAGE)
                page = [await self._placeholder(seq) for seq in range(after + 1, until + 1)]
                after = until
            yield page
            size = sum(len(stored.record.body) for stored in read)
            limit = max(1, limit // 4) if size > _PAGE_BYTES else min(_MAX_PAGE, limit * 2)

    async def _placeholder(self, seq: int) -> Kept:
        if self._damages is None:
            self._damages = await self._store.verify(self._head.session_id)
        damage = next((found for found in self._damages if found.seq == seq), None)
        damage = damage or next((found for found in self._damages if found.seq is None), None)
        record = self._record(seq, damage)
        return Kept(StoredEvent(seq, self._head.session_id, record), lost=True)

    def _record(self, seq: int, damage: Damage | None) -> Record:
        reason = damage.reason if damage else "gap"
        detail = {"where": damage.where, "offset": damage.offset, "length": damage.length} if damage else {}
        event: DamagedEvent | SessionInitEvent
        event = DamagedEvent(reason=reason, detail={n: value for n, value in detail.items() if value is not None})
        if seq == self._head.base_seq + 1:  # a session cannot be without its beginning
            event = _beginning(self._head)
        unix_ms = int(datetime.fromisoformat(self._last_time).timestamp() * 1000)
        chance = hashlib.sha256(f"{self._head.session_id}/{seq}".encode()).digest()
        event_id = ids.event_id(unix_ms, chance)  # the same however often the copy is run
        return Record(event_id, event.event_type, self._last_time, encode_body(event))


def _beginning(head: Head) -> SessionInitEvent:
    fork = ForkPoint(session_id=head.forked_from, seq=head.base_seq) if head.forked_from else None
    return SessionInitEvent(
        owner=head.owner,
        tenant=head.tenant,
        key=head.key,
        title=head.title,
        metadata=head.metadata,
        workspace=head.workspace,
        origin={**(head.origin or {}), "beginning": "lost"},
        forked_from=fork,
    )
