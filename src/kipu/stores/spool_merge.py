"""Bringing what a spool took in while the primary refused into the primary: in order, once, and again after a kill."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from kipu.errors import (
    ConflictError,
    LeaseLostError,
    LeaseRequiredError,
    SessionErasedError,
    SessionExistsError,
    SessionNotFoundError,
)
from kipu.ports.clock import Clock
from kipu.ports.head import Head, HeadPatch
from kipu.ports.store import LEASE_FREE_TYPES, MAX_PAGE, Appended, Binding, EventStore, Lease, Record
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.spooling import Batch
from kipu.stores.jsonl.store import JsonlStore
from kipu.stores.times import iso_from_us, us_from_iso

# The first record of a spooled session that exists in the primary; it is no event of anybody.
MARKER_TYPE = "session_init"
MARKER_ID = "spool"
MERGE_OWNER = "kipu-spool-merge"


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

    def __init__(self, primary: EventStore, spool: JsonlStore, *, session_id: str, clock: Clock) -> None:
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
            found = await self._batches()
            if found is None:
                break
            batches, last_seq = found
            lease = await self._spool.spool.lease_state(self._session_id)
            await self._merge(batches, lease)
            if await self._spool.spool.forget(self._session_id, last_seq=last_seq):
                break
        return MergeReport(self._session_id, self._merged, self._fork_id, self._forked, tuple(self._notes))

    async def _batches(self) -> tuple[list[Batch], int] | None:
        try:
            return await self._spool.spool.batches(self._session_id)
        except SessionNotFoundError:
            return None  # another process has merged it

    async def _merge(self, batches: list[Batch], lease: LeaseState) -> None:
        if batches and is_marker(batches[0].records[0]):
            batches = batches[1:]
        head = await self._primary.head(self._session_id)
        if batches:
            await self._merge_batches(batches, head, lease)
        head = await self._primary.head(self._session_id)
        if head is not None:
            await self._take_over_lease(head, lease)
            await self._copy_blobs()
            await self._copy_bindings()

    async def _merge_batches(self, batches: list[Batch], head: Head | None, lease: LeaseState) -> None:
        base_seq = batches[0].first_seq - 1
        fork_id = self._fork_name(batches[0])
        forked = await self._primary.head(fork_id) is not None
        stale = forked or (head is not None and head.lease_token > lease.token)
        known: set[str] = set()
        if head is not None:
            known = await self._known_ids(base_seq)
            await self._copy_blobs()
            if not stale:
                await self._take_over_lease(head, lease)
        for batch in batches:
            if batch.records[0].event_id in known:
                self._merged += len(batch.records)
                continue
            token = lease.token if head is not None and lease.token else None
            if not stale and not await self._replay(batch, token):
                stale = True
            if stale:
                await self._merge_stale(batch, base_seq=base_seq, fork_id=fork_id)

    async def _copy_blobs(self) -> None:
        there = set(await self._primary.blobs(self._session_id))
        for digest in await self._spool.blobs(self._session_id):
            if digest not in there:
                await self._primary.put_blob(self._session_id, await self._spool.get_blob(self._session_id, digest))

    async def _copy_bindings(self) -> None:
        for key in await self._spool.spool.keys_of(self._session_id):
            actual = await self._primary.resolve(key)
            if actual != self._session_id:
                await self._primary.bind(key, self._session_id, expected=actual)

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

    async def _take_over_lease(self, head: Head, lease: LeaseState) -> None:
        """Make the primary's lease what the spool's is, token included: whoever holds it there goes on here.

        The spool's began as the primary's, so that a higher token there was given after the primary's was over.
        """
        token, owner = head.lease_token, head.lease_owner
        if token > lease.token or (token, owner, head.lease_until) == (lease.token, lease.owner, lease.until):
            return
        ttl_s = self._remaining_s(lease)
        if token < lease.token and owner is not None:
            await self._primary.release(Lease(self._session_id, owner, token, ttl_s, ""))
        while token < lease.token:
            owner = lease.owner or MERGE_OWNER
            claimed = await self._primary.claim(self._session_id, owner=owner, ttl_s=ttl_s)
            if claimed is None:
                raise LeaseRequiredError(event_type="a spool", session_id=self._session_id, owner="somebody else")
            token = claimed.token
        held = Lease(self._session_id, owner or "", token, ttl_s, "")
        if lease.owner is None and owner is not None:
            await self._primary.release(held)
        elif lease.owner is not None and token == lease.token and owner == lease.owner:
            await self._primary.renew(held)

    def _remaining_s(self, lease: LeaseState) -> float:
        now_us = self._clock.now_us()
        until_us = us_from_iso(lease.until) if lease.until else now_us
        return max((until_us - now_us) / 1_000_000, 0.001)

    async def _replay(self, batch: Batch, token: int | None) -> bool:
        """Append a batch under its own numbers; False when they are taken."""
        try:
            outcome = await self._append(batch, token=token, expected_seq=self._expected(batch))
        except (ConflictError, LeaseLostError, SessionExistsError, SessionErasedError, SessionNotFoundError):
            return False
        self._note_final(batch, outcome)
        return True

    def _note_final(self, batch: Batch, outcome: Appended) -> None:
        """Remember the numbers that a batch has now: those behind a damaged record are others than they were."""
        for offset, seq in enumerate(batch.seqs):
            self._final[seq] = outcome.first_seq + offset
        self._merged += len(batch.records)

    @staticmethod
    def _expected(batch: Batch) -> int | None:
        return None if batch.records[0].event_type == MARKER_TYPE else batch.first_seq - 1

    async def _append(
        self, batch: Batch, *, token: int | None = None, expected_seq: int | None = None, head: HeadPatch | None = None
    ) -> Appended:
        bind = None
        if batch.bound_key is not None and await self._spool.resolve(batch.bound_key) == self._session_id:
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
        except (SessionExistsError, SessionErasedError, SessionNotFoundError) as refusal:
            self._notes.append(f"{len(batch.records)} events went to the fork: {refusal}")
            await self._fork(batch, base_seq=0, fork_id=self._fork_id or self._fork_name(batch))
            return
        self._note_final(batch, outcome)

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
        if await self._primary.head(fork_id) is not None:
            return
        parent = await self._primary.head(self._session_id) or Head(self._session_id)
        now = iso_from_us(self._clock.now_us())
        body: dict[str, Any] = {
            "owner": parent.owner,
            "tenant": parent.tenant,
            "title": f"{parent.display_title} (held back in the fallback)",
            "metadata": parent.metadata,
            "workspace": parent.workspace,
            "origin": {"kind": "spool", "session_id": self._session_id},
        }
        times = {"created_at": now, "last_activity_at": parent.last_activity_at, "status": "active"}
        fields = {**body, **times}
        if parent.last_seq and base_seq:
            body["forked_from"] = {"session_id": self._session_id, "seq": base_seq}
            fields = {**fields, "forked_from": self._session_id, "base_seq": base_seq}
        record = Record(f"{fork_id}-init", MARKER_TYPE, now, orjson.dumps(body))
        try:
            await self._primary.append(fork_id, [record], head=HeadPatch(set=fields))
        except SessionExistsError:
            return

    def _fork_name(self, batch: Batch) -> str:
        """Return the id of the fork: always the same for the same spool, so that a killed merge goes on with it."""
        digest = hashlib.sha256(f"{self._session_id}/{batch.records[0].event_id}".encode()).hexdigest()[:16]
        return f"{self._session_id[:40]}-spool-{digest}"


def is_marker(record: Record) -> bool:
    """Return True for the record that begins a spooled session and is no event."""
    return record.event_id == MARKER_ID and record.event_type == MARKER_TYPE
