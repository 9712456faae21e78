"""Where one session of a source goes: the session of that id if it can, else one of its own, and never over anything."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kipu.errors import InvalidSessionIdError, SessionErasedError, SessionExistsError
from kipu.events import ids
from kipu.events.normalise import normalise
from kipu.interop.incoming_event import Incoming, referred, with_blobs
from kipu.manager.access import Verb, may
from kipu.manager.begun import begun
from kipu.manager.loader import item_of
from kipu.manager.lock import SessionLock
from kipu.manager.manager import SessionManager
from kipu.manager.replaying import HeadReplay
from kipu.ports.head import Head, head_to_json
from kipu.ports.principal import Principal
from kipu.ports.store import StoredEvent

BATCH_EVENTS = 256
BATCH_BYTES = 4 << 20
_PAGE = 256
_LEASE_S = 30.0
_WAIT_S = 5.0


class ImportTarget:
    """Take the events of one source session, in order, and see to it that they are in the store.

    While the session that stands under the id has just these events, nothing is added. Where it ends, and it is an import
    itself, it is gone on with; where it differs, what was the same so far is put into another session, and the rest too.
    """

    def __init__(
        self,
        manager: SessionManager,
        *,
        principal: Principal,
        source_id: str,
        base_seq: int,
        as_new: bool,
    ) -> None:
        self._manager = manager
        self._store = manager.store
        self._principal = principal
        self._source_id = source_id
        self._base_seq = base_seq
        self._candidates = self._names(as_new)
        self._buffer: list[Incoming] = []
        self._buffered = 0
        self._page: list[StoredEvent] = []
        self._there: Head | None = None  # while comparing: the session that stands under the id
        self._created = False
        self._lock: SessionLock | None = None
        self._replay = HeadReplay({})
        self.session_id = ""
        self.next_seq = base_seq + 1
        self.added = 0

    @property
    def buffered(self) -> int:
        """Return how many bytes wait to be appended."""
        return self._buffered

    def _names(self, as_new: bool) -> Iterator[str]:
        """Yield ids to try: the source's own, then others that are always the same for this principal and source."""
        if as_new:
            while True:
                yield self._manager.mint("sess")
        with suppress(InvalidSessionIdError):
            yield ids.check_session_id(self._source_id)
        number = 0
        while True:
            text = "\n".join((self._principal.tenant, self._principal.id, self._source_id, str(number)))
            yield "imp_" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
            number += 1

    # ---- choosing --------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Choose the next session that is free, or that this principal may read and that may be the same."""
        for candidate in self._candidates:
            head = await begun(self._store, candidate)
            if head is None:
                self._there = None
            elif head.base_seq == self._base_seq and may(self._principal, Verb.READ, head=head):
                self._there = head
            else:
                continue
            self.session_id, self._created = candidate, head is not None
            self._replay = HeadReplay(head_to_json(head or Head(session_id=candidate, last_seq=self._base_seq)))
            if head is None and self._base_seq:
                self._replay.put(base_seq=self._base_seq)
            self.next_seq, self.added, self._page = self._base_seq + 1, 0, []
            return

    async def _go_elsewhere(self) -> None:
        """Take another session, and put the events there that the one so far had in the same way."""
        before, until, waiting = self.session_id, self.next_seq - 1, self._buffer
        compared = self._there is not None
        self._buffer, self._buffered = [], 0
        await self.begin()
        if compared:
            async for incoming in self._events(before, until):
                await self.put(incoming)
        for incoming in waiting:
            await self.put(incoming)

    async def _events(self, session_id: str, until: int) -> AsyncIterator[Incoming]:
        after, there = self._base_seq, set(await self._store.blobs(session_id))
        while after < until:
            page = await self._store.read(session_id, after=after, until=until, limit=_PAGE)
            for stored in page:
                incoming = Incoming(item_of(stored).event, stored.record, {})
                wanted = [digest for digest in referred(incoming) if digest in there]
                blobs = {digest: await self._store.get_blob(session_id, digest) for digest in wanted}
                yield with_blobs(incoming, blobs)
            if not page:
                return
            after = page[-1].seq

    # ---- taking ----------------------------------------------------------------------------------------------------

    async def put(self, incoming: Incoming) -> None:
        """Take the next event."""
        while self._there is not None:
            stored = await self._stored(self.next_seq)
            if stored is None and self._goes_on(self._there):
                self._there = None
            elif stored is not None and _same(stored, incoming):
                await self._put_blobs(incoming.blobs)
                self.next_seq += 1
                return
            else:
                await self._go_elsewhere()
        self._buffer.append(incoming)
        self._buffered += incoming.size
        self.next_seq += 1
        self.added += 1
        if len(self._buffer) >= BATCH_EVENTS or self._buffered >= BATCH_BYTES:
            await self.flush()

    def _goes_on(self, head: Head) -> bool:
        origin = head.origin or {}
        mine = origin.get("kind") == "import" and origin.get("session_id") == normalise(self._source_id)[0]
        return mine and may(self._principal, Verb.APPEND, head=head)

    async def _stored(self, seq: int) -> StoredEvent | None:
        if not self._page or not self._page[0].seq <= seq <= self._page[-1].seq:
            self._page = await self._store.read(self.session_id, after=seq - 1, limit=_PAGE)
        index = seq - self._page[0].seq if self._page else 0
        return self._page[index] if index < len(self._page) and self._page[index].seq == seq else None

    async def has(self, seq: int, event_id: str) -> bool:
        """Return True when the event under this number is this one."""
        await self.flush()
        found = await self._store.read(self.session_id, after=seq - 1, until=seq, limit=1)
        return bool(found) and found[0].record.event_id == event_id

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def flush(self, *, final: bool = False) -> None:
        """Append what waits; `final` says that nothing follows."""
        if not self._buffer:
            return
        try:
            if not self._created:
                await self._create(final=final)
            elif self._lock is None:
                await self._acquire()
        except (SessionErasedError, SessionExistsError):
            await self._go_elsewhere()
            await self.flush(final=final)
            return
        if self._buffer:
            for incoming in self._buffer:
                await self._put_blobs(incoming.blobs)
            await self._append(self._buffer)

    async def _create(self, *, final: bool) -> None:
        """Append the beginning; alone, if blobs or more batches follow, so that the session is locked before it has work."""
        alone = not final or any(incoming.blobs for incoming in self._buffer)
        first = self._buffer[:1] if alone else list(self._buffer)
        await self._append(first)
        self._created = True
        if alone:
            await self._put_blobs(first[0].blobs)
            await self._acquire()

    async def _acquire(self) -> None:
        owner = f"{self._manager.owner}.import"
        lock = SessionLock(self._store, self.session_id, owner=owner, ttl_s=_LEASE_S)
        await lock.acquire(wait_s=_WAIT_S)
        self._lock = lock

    async def _append(self, batch: list[Incoming]) -> None:
        first_seq = self.next_seq - len(self._buffer)
        replay = self._replay
        for index, incoming in enumerate(batch):
            event = incoming.event.model_copy(update={"seq": first_seq + index})
            replay.take(event, tokens=incoming.record.tokens)
        replay.disarm()
        await self._store.append(
            self.session_id,
            [incoming.record for incoming in batch],
            head=replay.patch(),
            token=self._lock.token if self._lock else None,
            expected_seq=first_seq - 1,
        )
        self._buffer = self._buffer[len(batch) :]
        self._buffered = sum(incoming.size for incoming in self._buffer)

    async def _put_blobs(self, blobs: Mapping[str, bytes]) -> None:
        if not blobs:
            return
        there = set(await self._store.blobs(self.session_id))
        for digest, data in blobs.items():
            if digest not in there:
                await self._store.put_blob(self.session_id, data)

    async def finish(self) -> None:
        """Append the rest and let go of the session."""
        try:
            await self.flush(final=True)
        finally:
            await self.release()

    async def release(self) -> None:
        """Let go of the session."""
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.release()


def _same(stored: StoredEvent, incoming: Incoming) -> bool:
    there, here = stored.record, incoming.record
    return (there.event_id, there.event_type) == (here.event_id, here.event_type)


def beginning_changes(
    principal: Principal, *, origin: Mapping[str, Any], before: Mapping[str, Any], forked_from: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what an import changes in a `session_init`: the owner, the parent it can really have, and where it came from."""
    came_with = {"owner": before.get("owner"), "tenant": before.get("tenant"), "origin": before.get("origin")}
    if before.get("forked_from") != forked_from:
        came_with["forked_from"] = before.get("forked_from")
    said = {name: value for name, value in came_with.items() if value}
    return {
        "owner": principal.id,
        "tenant": principal.tenant,
        "forked_from": forked_from,
        "origin": {**origin, **({"was": said} if said else {})},
    }
