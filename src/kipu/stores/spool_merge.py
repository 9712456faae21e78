"""Bringing what a spool took in while the primary refused into the primary: in order, once, and again after a kill."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from kipu.errors import ConflictError, LeaseLostError, LeaseRequiredError, SessionExistsError, SessionNotFoundError
from kipu.ports.clock import Clock
from kipu.ports.head import Head, HeadPatch
from kipu.ports.store import LEASE_FREE_TYPES, MAX_PAGE, Appended, Binding, EventStore, Lease, Record
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.spooling import Batch
from kipu.stores.jsonl.store import JsonlStore
from kipu.stores.times import iso_from_us

# The first record of a spooled session that exists in the primary; it is no event of anybody.
MARKER_TYPE = "session_init"
MARKER_ID = "spool"
MERGE_OWNER = "kipu-spool-merge"
_LEASE_S = 15.0


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What became of one spooled session: how many events are in it now, and what went to a fork instead."""

    session_id: str
    merged: int
    forked_to: str | None = None
    forked: int = 0
    notes: tuple[str, ...] = field(default=())


class SpoolMerge:
    """Merge one session. Each step may be repeated: batches are known by their keys and their first event's id.

    Turn events whose place was taken meanwhile, or whose token is stale, go to a fork at the seq where the spool began.
    """

    def __init__(self, primary: EventStore, spool: JsonlStore, session_id: str, *, clock: Clock) -> None:
        self._primary = primary
        self._spool = spool
        self._session_id = session_id
        self._clock = clock
        self._final: dict[int, int] = {}  # provisional seq → final seq, where they differ
        self._merged = 0
        self._forked = 0
        self._fork_id: str | None = None
        self._notes: list[str] = []

    async def run(self) -> MergeReport:
        """Merge until the spool has nothing left. Raises: StoreUnavailableError while the primary refuses."""
        while True:
            batches = await self._batches()
            if batches is None:
                break
            lease = await self._spool.lease_state(self._session_id)
            await self._merge(batches, lease)
            if await self._spool.forget(self._session_id, last_seq=batches[-1].last_seq if batches else 0):
                break
        return MergeReport(self._session_id, self._merged, self._fork_id, self._forked, tuple(self._notes))

    async def _batches(self) -> list[Batch] | None:
        try:
            return await self._spool.batches(self._session_id)
        except SessionNotFoundError:
            return None  # another process has merged it

    async def _merge(self, batches: list[Batch], lease: LeaseState) -> None:
        for digest in await self._spool.blobs(self._session_id):
            await self._copy_blob(digest)
        begins = not (batches and is_marker(batches[0].records[0]))
        if not begins:
            del batches[0]
        if not batches:
            return
        base_seq = batches[0].first_seq - 1
        head = await self._primary.head(self._session_id)
        fork_id = self._fork_name(batches[0])
        forked = await self._primary.head(fork_id) is not None
        stale = forked or (head is not None and head.lease_token > lease.token)
        held = None if stale or head is None else await self._hold(head, lease)
        known = await self._known_ids(base_seq) if head is not None else set()
        for batch in batches:
            if batch.records[0].event_id in known:
                self._merged += len(batch.records)
                continue
            if not stale and not await self._replay(batch, held):
                stale = True
            if stale:
                await self._merge_stale(batch, base_seq=base_seq, fork_id=fork_id)
        if held is not None and held.owner == MERGE_OWNER:
            await self._primary.release(held)

    async def _copy_blob(self, digest: str) -> None:
        if await self._primary.head(self._session_id) is not None:
            await self._primary.put_blob(self._session_id, await self._spool.get_blob(self._session_id, digest))

    async def _known_ids(self, base_seq: int) -> set[str]:
        """Return the ids of events behind the place where the spool began: some may have been written after all."""
        known: set[str] = set()
        after = base_seq
        while True:
            page = await self._primary.read(self._session_id, after=after, limit=MAX_PAGE)
            if not page:
                return known
            known.update(event.record.event_id for event in page)
            after = page[-1].seq

    async def _hold(self, head: Head, lease: LeaseState) -> Lease | None:
        """Make the primary's token the spool's, so that whoever holds the session there still holds it here."""
        owner = lease.owner or MERGE_OWNER
        token, held = head.lease_token, None
        while token < lease.token:
            held = await self._primary.claim(self._session_id, owner=owner, ttl_s=_LEASE_S)
            if held is None:
                raise LeaseRequiredError(event_type="a spool", session_id=self._session_id, owner=head.lease_owner)
            token = held.token
        return held or Lease(self._session_id, head.lease_owner or "", token, _LEASE_S, head.lease_until or "")

    async def _replay(self, batch: Batch, held: Lease | None) -> bool:
        """Append a batch under its own numbers; False when they are taken."""
        try:
            await self._append(batch, token=held.token if held else None, expected_seq=self._expected(batch))
        except (ConflictError, LeaseLostError, SessionExistsError):
            return False
        self._merged += len(batch.records)
        return True

    @staticmethod
    def _expected(batch: Batch) -> int | None:
        return None if batch.records[0].event_type == MARKER_TYPE else batch.first_seq - 1

    async def _append(
        self, batch: Batch, *, token: int | None = None, expected_seq: int | None = None, head: HeadPatch | None = None
    ) -> Appended:
        bind = None
        if batch.bound_key is not None:
            bind = Binding(batch.bound_key, await self._primary.resolve(batch.bound_key))
        return await self._primary.append(
            self._session_id,
            batch.records,
            head=batch.head if head is None else head,
            bind=bind,
            token=token,
            expected_seq=expected_seq,
            idempotency_key=batch.idempotency_key or f"spool:{batch.records[0].event_id}",
        )

    # -- what came too late ----------------------------------------------------------------------------------------------

    async def _merge_stale(self, batch: Batch, *, base_seq: int, fork_id: str) -> None:
        if all(record.event_type in LEASE_FREE_TYPES for record in batch.records):
            await self._arrive(batch)
        else:
            await self._fork(batch, base_seq=base_seq, fork_id=fork_id)

    async def _arrive(self, batch: Batch) -> None:
        """Append an arrival where the session is now, its patch naming events by their final numbers."""
        try:
            outcome = await self._append(batch, head=self._renumbered(batch.head))
        except SessionExistsError:
            self._notes.append(f"{self._session_id} was begun twice: the second beginning was left out")
            return
        for offset in range(len(batch.records)):
            self._final[batch.first_seq + offset] = outcome.first_seq + offset
        self._merged += len(batch.records)

    def _renumbered(self, patch: HeadPatch) -> HeadPatch:
        final = self._final

        def seqs(named: Any) -> dict[str, list[int]]:
            return {name: [final.get(seq, seq) for seq in values] for name, values in named.items()}

        return patch._replace(insert=seqs(patch.insert), discard=seqs(patch.discard))

    async def _fork(self, batch: Batch, *, base_seq: int, fork_id: str) -> None:
        await self._begin_fork(fork_id, base_seq)
        await self._primary.append(
            fork_id,
            batch.records,
            head=batch.head,
            idempotency_key=f"spool-fork:{batch.records[0].event_id}",
        )
        self._forked += len(batch.records)

    async def _begin_fork(self, fork_id: str, base_seq: int) -> None:
        self._fork_id = fork_id
        parent = await self._primary.head(self._session_id)
        if parent is None or await self._primary.head(fork_id) is not None:
            return
        now = iso_from_us(self._clock.now_us())
        origin = {"kind": "spool", "session_id": self._session_id}
        title = f"{parent.display_title} (held back in the fallback)"
        body = {
            "owner": parent.owner,
            "tenant": parent.tenant,
            "title": title,
            "metadata": parent.metadata,
            "workspace": parent.workspace,
            "forked_from": {"session_id": self._session_id, "seq": base_seq},
            "origin": origin,
        }
        fields = {**body, "forked_from": self._session_id, "base_seq": base_seq, "status": "active"}
        record = Record(f"{fork_id}-init", MARKER_TYPE, now, orjson.dumps(body))
        patch = HeadPatch(set={**fields, "created_at": now, "last_activity_at": parent.last_activity_at})
        try:
            await self._primary.append(fork_id, [record], head=patch)
        except SessionExistsError:
            return

    def _fork_name(self, batch: Batch) -> str:
        """Return the id of the fork: always the same for the same spool, so that a killed merge goes on with it."""
        digest = hashlib.sha256(f"{self._session_id}/{batch.records[0].event_id}".encode()).hexdigest()[:16]
        return f"{self._session_id[:40]}-spool-{digest}"


def is_marker(record: Record) -> bool:
    """Return True for the record that begins a spooled session and is no event."""
    return record.event_id == MARKER_ID and record.event_type == MARKER_TYPE
