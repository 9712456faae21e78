"""The ledger of erasures, in the store itself: what is under way, durably before anything is gone, and every receipt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from kipu.context.tokens import EstimateCounter
from kipu.errors import ConflictError, SessionNotFoundError
from kipu.events import ids
from kipu.events.boundary import MetadataChangedEvent, NoteEvent, SessionInitEvent
from kipu.events.event import SessionEvent
from kipu.manager.erasing.receipt import Receipt
from kipu.manager.loader import item_of
from kipu.manager.writer import EventWriter
from kipu.ports.clock import Clock, Entropy
from kipu.ports.store import Binding, EventStore, SessionQuery
from kipu.session.patch import patch_for

LEDGER_KEY = "kipu:erasures"
RECEIPT = "kipu.erasure_receipt"
_NOBODY = ""
_OPEN = "open."  # of the settings that name erasures under way
_BATCH = 200


class Ledger:
    """Keep one session of receipts and, for each erasure under way, one session of its own, which goes with it.

    So a plan, which says where things are, is erased like everything else, and the receipt stays. Both are sealed where the
    store is. Nobody owns them: they are listed to nobody.
    """

    def __init__(self, store: EventStore, *, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self._now_us = clock.now_us
        self._ledger_id: str | None = None
        self._writer = EventWriter(store, clock=clock, entropy=entropy, counter=EstimateCounter())

    # ---- what is under way -----------------------------------------------------------------------------------------

    async def begin(self, erasure_id: str, facts: dict[str, Any], *, steps: Sequence[dict[str, Any]]) -> None:
        """Make a plan durable. Before its last step is, it counts as never begun."""
        await self._append(await self._ledger(), [MetadataChangedEvent(set={_OPEN + erasure_id: True})])
        await self._append(erasure_id, [_beginning(f"kipu:{erasure_id}")])
        for start in range(0, len(steps), _BATCH):
            await self._append(erasure_id, [_note("step", step) for step in steps[start : start + _BATCH]])
        await self._append(erasure_id, [_note("planned", facts)])

    async def did(self, erasure_id: str, outcome: dict[str, Any]) -> None:
        """Note what a step removed, so that the receipt counts it also after a kill."""
        await self._append(erasure_id, [_note("did", outcome)])

    async def under_way(self) -> list[str]:
        """Return the erasures that are not finished: one look at one key where there never was one."""
        ledger_id = await self._found()
        head = None if ledger_id is None else await self._store.head(ledger_id)
        return [] if head is None else sorted(n.removeprefix(_OPEN) for n in head.metadata if n.startswith(_OPEN))

    async def plan(self, erasure_id: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]], list[dict[str, Any]]]:
        """Return an erasure's facts (None: it was never fully planned), its steps, and what was done so far."""
        facts: dict[str, Any] | None = None
        found: dict[str, list[dict[str, Any]]] = {"step": [], "did": []}
        with suppress(SessionNotFoundError):
            async for note in self._notes(erasure_id):
                kind = note.kind.removeprefix("kipu.erasing.")
                if kind == "planned":
                    facts = note.data
                elif kind in found:
                    found[kind].append(note.data)
        return facts, found["step"], found["did"]

    async def finish(self, receipt: Receipt) -> None:
        """Keep the receipt, once."""
        note = NoteEvent(kind=RECEIPT, data=receipt.to_json())
        await self._append(await self._ledger(), [note], idempotency_key=f"kipu-erasure:{receipt.erasure_id}")

    async def forget(self, erasure_id: str) -> None:
        """Take an erasure off the list, whose plan is gone: it is done, or never began."""
        await self._append(await self._ledger(), [MetadataChangedEvent(unset=[_OPEN + erasure_id])])

    # ---- receipts --------------------------------------------------------------------------------------------------

    async def receipts(self) -> AsyncIterator[Receipt]:
        """Yield every receipt, also those that came with a copy of another store, oldest first within each."""
        if await self._found() is None:
            return
        query = SessionQuery(key=LEDGER_KEY, owner=_NOBODY, order="created_at", descending=False, limit=100)
        for head in (await self._store.list(query)).items:
            async for note in self._notes(head.session_id):
                if note.kind == RECEIPT:
                    yield Receipt.from_json(note.data)

    # ---- small things ----------------------------------------------------------------------------------------------

    async def _notes(self, session_id: str) -> AsyncIterator[NoteEvent]:
        after = 0
        while page := await self._store.read(session_id, after=after):
            after = page[-1].seq
            for stored in page:
                event = item_of(stored).event
                if isinstance(event, NoteEvent):
                    yield event

    async def _found(self) -> str | None:
        return self._ledger_id or await self._store.resolve(LEDGER_KEY)

    async def _ledger(self) -> str:
        """Return the id of the store's own ledger, made where there is none."""
        while self._ledger_id is None:
            bound = await self._store.resolve(LEDGER_KEY)
            head = None if bound is None else await self._store.head(bound)
            if head is not None and head.owner == _NOBODY:
                self._ledger_id = head.session_id
                break
            name = ids.prefixed_id("ledger", self._now_us() // 1000, random=self._entropy.random_bytes(10))
            with suppress(ConflictError):  # another process was quicker
                await self._append(name, [_beginning(LEDGER_KEY)], bind=Binding(LEDGER_KEY, bound))
        return self._ledger_id

    async def _append(
        self,
        session_id: str,
        events: Sequence[SessionEvent],
        *,
        bind: Binding | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        prepared = [await self._writer.prepare(session_id, event) for event in events]
        await self._store.append(
            session_id,
            [each.record for each in prepared],
            head=patch_for([each.event for each in prepared]),
            bind=bind,
            idempotency_key=idempotency_key,
        )


def _beginning(key: str) -> SessionInitEvent:
    return SessionInitEvent(key=key, metadata={"pinned": True})


def _note(kind: str, data: dict[str, Any]) -> NoteEvent:
    return NoteEvent(kind=f"kipu.erasing.{kind}", data=data)
