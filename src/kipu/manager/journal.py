"""One session's log as this process writes to it: stored first, then seen by memory, in the store's order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.errors import ConflictError, InputError, LeaseRequiredError
from kipu.events.boundary import CompactionEvent, NoteEvent, StatusChangedEvent
from kipu.events.conversation import InstructionEvent
from kipu.events.event import SessionEvent, placed, with_fields
from kipu.manager.history import LiveHistory
from kipu.manager.loader import PAGE, item_of
from kipu.manager.lock import SessionLock
from kipu.manager.writer import EventWriter, Prepared
from kipu.ports.head import HeadPatch, apply_patch
from kipu.ports.store import Appended, EventStore
from kipu.session.lifecycle import ACTIVE, revives
from kipu.session.patch import WINDOW_NOTE, patch_for

_USES = frozenset({"user_message", "turn_started"})


class Journal:
    """Append to one session and keep its projections in step.

    A failed append leaves memory as it was (B31). Appends of this object are applied in the order they were stored; what
    others appended in between is read and applied first.
    """

    def __init__(self, store: EventStore, history: LiveHistory, *, writer: EventWriter, lock: SessionLock) -> None:
        self._store = store
        self._history = history
        self._writer = writer
        self._lock = lock
        self._order = asyncio.Lock()
        self._session_id = lock.session_id

    @property
    def in_use(self) -> bool:
        """Return True while an append is under way."""
        return self._order.locked()

    async def append(
        self,
        events: Sequence[SessionEvent],
        *,
        principal: str,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
        token: int | None = None,
    ) -> tuple[Appended, list[SessionEvent]]:
        """Store a batch, all or nothing, and return where it stands, and the events as stored. Raises: InputError (an empty key)."""
        if idempotency_key is not None and not idempotency_key.strip():
            raise InputError(
                reason="the idempotency key is empty, and tells no batch from another; give none, or one that does"
            )
        token = self._lock.token if token is None and self._lock.mine else token
        prepared = [self._prepare(event, principal) for event in events]
        for entry in prepared:
            for data in entry.blobs:
                await self._store.put_blob(self._session_id, data)
        how: dict[str, Any] = {"expected_seq": expected_seq, "idempotency_key": idempotency_key, "token": token}
        async with self._order:
            wakes = self._wakes(prepared)
            try:
                appended, stored = await self._commit_all(prepared, wakes=wakes, how=how)
            except LeaseRequiredError:
                # A status needs the lease, an arrival does not: while somebody else has it, the next turn wakes the session.
                if not wakes:
                    raise
                appended, stored = await self._commit_all(prepared, wakes=False, how=how)
            if appended.duplicate:
                stored = await self._first_outcome(appended)
            elif not wakes and self._wakes(prepared):
                # Somebody put the session aside, and this process has only now read of it.
                with suppress(LeaseRequiredError):
                    await self._commit_all([], wakes=True, how={"expected_seq": None, "token": token})
            return appended, stored[-len(prepared) :]

    async def save(self) -> None:
        """Store what only memory holds: a window jump that no append has recorded yet (A47)."""
        async with self._order:
            while self._history.unrecorded_jump is not None:
                try:
                    await self._commit(self._unrecorded(wakes=False), expected_seq=self._history.last_seq)
                    return
                except ConflictError:
                    if not await self._has_moved():
                        return  # what came since is damaged: whoever opens it next jumps anew

    async def _commit_all(
        self, prepared: Sequence[Prepared], *, wakes: bool, how: Mapping[str, Any]
    ) -> tuple[Appended, list[SessionEvent]]:
        """Store a batch behind what has to be recorded before it.

        A jump is recorded only where nobody has appended since: after a rewind it would leave out what the window went back to.
        """
        if how["expected_seq"] is not None and self._history.unrecorded_jump is not None:
            await self._history.refresh()
        while how["expected_seq"] is None and self._history.unrecorded_jump is not None:
            batch = [*self._unrecorded(wakes=wakes), *prepared]
            try:
                return await self._commit(batch, **{**how, "expected_seq": self._history.last_seq})
            except ConflictError:
                if not await self._has_moved():
                    break
        return await self._commit([*self._unrecorded(wakes=wakes), *prepared], **how)

    async def _has_moved(self) -> bool:
        """Take in what others have appended; say whether there was anything that can be read."""
        known = self._history.last_seq
        await self._history.refresh()
        return self._history.last_seq > known

    async def _commit(
        self,
        batch: Sequence[Prepared],
        *,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
        token: int | None = None,
    ) -> tuple[Appended, list[SessionEvent]]:
        records = [entry.record for entry in batch]
        patch = self._lean(patch_for([entry.event for entry in batch], [record.timestamp for record in records]))
        appended = await self._store.append(
            self._session_id,
            records,
            head=patch,
            token=token,
            expected_seq=expected_seq,
            idempotency_key=idempotency_key,
        )
        if appended.duplicate:
            return appended, []
        if appended.first_seq > self._history.last_seq + 1:
            await self._catch_up(appended.first_seq - 1)
        stored = self._apply(batch, appended, patch=patch)
        if not self._history.settled:
            await self._history.settle()
        return appended, stored

    async def refresh(self) -> None:
        """Take in what others have appended."""
        async with self._order:
            await self._history.refresh()

    async def set_policy(self, policy: WindowPolicy) -> None:
        """Cut the window otherwise from now on."""
        async with self._order:
            await self._history.set_policy(policy)

    def _prepare(self, event: SessionEvent, principal: str) -> Prepared:
        if isinstance(event, (InstructionEvent, CompactionEvent)) and not event.previous_seq:
            # Anchors are chained, so that a rewind or a fork finds the one before without reading the log.
            name = "instruction_seq" if isinstance(event, InstructionEvent) else "compaction_seq"
            event = with_fields(event, {"previous_seq": self._history.row.get(name, 0)})
        return self._writer.ready(self._session_id, event, principal=principal)

    def _lean(self, patch: HeadPatch) -> HeadPatch:
        """Return the patch without defaults that are set already: they would only make the log longer."""
        return patch._replace(default={}) if patch.default and self._history.row.get("first_text") else patch

    def _unrecorded(self, *, wakes: bool) -> list[Prepared]:
        """Return what has to be recorded before a batch: a window jump, and waking up when somebody uses it again."""
        before: list[SessionEvent] = []
        jump = self._history.unrecorded_jump
        if jump is not None:
            before.append(NoteEvent(kind=WINDOW_NOTE, data=jump))
        if wakes:
            before.append(StatusChangedEvent(status="active", reason="use"))
        return [self._writer.ready(self._session_id, event) for event in before]

    def _wakes(self, batch: Sequence[Prepared]) -> bool:
        status = self._history.row.get("status", ACTIVE)
        return revives(status) and any(entry.record.event_type in _USES for entry in batch)

    def _apply(self, batch: Sequence[Prepared], appended: Appended, *, patch: HeadPatch) -> list[SessionEvent]:
        items = [
            Item(seq, placed(entry.event, seq), entry.record.tokens)
            for seq, entry in enumerate(batch, appended.first_seq)
        ]
        row = apply_patch(
            self._history.row,
            patch,
            first_seq=appended.first_seq,
            timestamps=[entry.record.timestamp for entry in batch],
            tokens=sum([item.tokens for item in items]),
        )
        self._history.advance(items, row=row)
        return [item.event for item in items]

    async def _catch_up(self, until: int) -> None:
        while self._history.last_seq < until:
            missed = await self._store.read(self._session_id, after=self._history.last_seq, until=until, limit=PAGE)
            if not missed:  # what lies between is damaged: it is reported by `verify`, and the log goes on behind it
                return
            self._history.advance([item_of(stored) for stored in missed])

    async def _first_outcome(self, appended: Appended) -> list[SessionEvent]:
        found: list[SessionEvent] = []
        after = appended.first_seq - 1
        while page := await self._store.read(appended.session_id, after=after, until=appended.last_seq, limit=PAGE):
            found += [item_of(stored).event for stored in page]
            after = page[-1].seq
        return found
