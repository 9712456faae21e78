"""Bringing what a spool took in while the primary refused into the primary: in order, once, and again after a kill."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
        self._final: dict[int, int] = {}  # provisional seq → final seq, of what is merged
        self._in_fork: dict[int, int] = {}  # provisional seq → seq in the fork
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
        base_seq = batches[0].first_seq - 1 if batches else 0
        if batches and is_marker(batches[0].records[0]):
            base_seq, batches = batches[0].last_seq, batches[1:]
        head = await self._primary.head(self._session_id)
        if batches:
            await self._merge_batches(batches, head, lease, base_seq=base_seq)
        head = await self._primary.head(self._session_id)
        if head is not None:
            await self._take_over_lease(head, lease)
            await self._copy_blobs()
            await self._copy_bindings()

    async def _merge_batches(
        self, batches: list[Batch], head: Head | None, lease: LeaseState, *, base_seq: int
    ) -> None:
        fork_id = self._fork_name(batches[0])
        forked = await self._primary.head(fork_id) is not None
        stale = forked or (head is not None and head.lease_token > lease.token)
        known: dict[str, int] = {}
        if head is not None:
            known = await self._known_seqs(base_seq)
            await self._copy_blobs()
            if not stale:
                await self._take_over_lease(head, lease)
        end = base_seq
        for batch in batches:
            at = known.get(batch.records[0].event_id)
            if at is not None:
                end = self._note_final(batch, at)
                stale = stale or at > batch.first_seq
                continue
            token = lease.token if head is not None and lease.token else None
            if not stale:
                replayed = await self._replay(batch, token, after=end, base_seq=base_seq)
                stale, end = replayed is None, replayed or end
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

    async def _known_seqs(self, base_seq: int) -> dict[str, int]:
        """Return the events behind the place where the spool began, by id: some may have been written after all."""
        known: dict[str, int] = {}
        after = base_seq
        while True:
            page = await self._primary.read(self._session_id, after=after, limit=MAX_PAGE)
            if not page:
                return known
            known.update((event.record.event_id, event.seq) for event in page)
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

    async def _replay(self, batch: Batch, token: int | None, *, after: int, base_seq: int) -> int | None:
        """Append a batch behind the one before it and return where it ends; None when that place is taken.

        These are its own numbers, but where lines of the spool were lost: what comes behind them moves up.
        """
        expected = None if batch.records[0].event_type == MARKER_TYPE else after
        patch = _renumbered(batch.head, self._final, base_seq=base_seq)
        try:
            outcome = await self._append(batch, token=token, expected_seq=expected, head=patch)
        except (ConflictError, LeaseLostError, SessionExistsError, SessionErasedError, SessionNotFoundError):
            return None
        return self._note_final(batch, outcome.first_seq)

    def _note_final(self, batch: Batch, first_seq: int) -> int:
        """Remember the numbers that a batch has now, those behind a damaged record being others than they were; return the last."""
        self._final.update(zip(batch.seqs, range(first_seq, first_seq + len(batch.seqs)), strict=True))
        self._merged += len(batch.records)
        return first_seq + len(batch.seqs) - 1

    async def _append(
        self, batch: Batch, *, head: HeadPatch, token: int | None = None, expected_seq: int | None = None
    ) -> Appended:
        bind = None
        if batch.bound_key is not None and await self._spool.resolve(batch.bound_key) == self._session_id:
            bind = Binding(batch.bound_key, await self._primary.resolve(batch.bound_key))
        return await self._primary.append(
            self._session_id,
            batch.records,
            head=head,
            bind=bind,
            token=token,
            expected_seq=expected_seq,
            idempotency_key=batch.idempotency_key or f"spool:{batch.records[0].event_id}",
        )

    # -- what came too late ----------------------------------------------------------------------------------------------

    async def _merge_stale(self, batch: Batch, *, base_seq: int, fork_id: str) -> None:
        if all(record.event_type in LEASE_FREE_TYPES for record in batch.records):
            await self._arrive(batch, base_seq=base_seq)
        else:
            await self._fork(batch, base_seq=base_seq, fork_id=fork_id)

    async def _arrive(self, batch: Batch, *, base_seq: int) -> None:
        """Append an arrival where the session is now, its patch naming events by their final numbers."""
        try:
            outcome = await self._append(batch, head=_renumbered(batch.head, self._final, base_seq=base_seq))
        except (SessionExistsError, SessionErasedError, SessionNotFoundError) as refusal:
            self._notes.append(f"{len(batch.records)} events went to the fork: {refusal}")
            await self._fork(batch, base_seq=0, fork_id=self._fork_id or self._fork_name(batch))
            return
        self._note_final(batch, outcome.first_seq)

    async def _fork(self, batch: Batch, *, base_seq: int, fork_id: str) -> None:
        shared_seq = await self._begin_fork(fork_id, base_seq)
        outcome = await self._primary.append(
            fork_id,
            batch.records,
            head=_renumbered(batch.head, self._in_fork, base_seq=shared_seq),
            idempotency_key=f"spool-fork:{batch.records[0].event_id}",
        )
        self._in_fork.update(zip(batch.seqs, range(outcome.first_seq, outcome.last_seq + 1), strict=True))
        self._forked += len(batch.records)

    async def _begin_fork(self, fork_id: str, base_seq: int) -> int:
        """Begin the fork where that is still to be done; return up to where its events are the session's."""
        self._fork_id = fork_id
        fork = await self._primary.head(fork_id)
        if fork is not None:
            return fork.base_seq
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
        else:
            base_seq = 0
        record = Record(f"{fork_id}-init", MARKER_TYPE, now, orjson.dumps(body))
        with suppress(SessionExistsError):
            await self._primary.append(fork_id, [record], head=HeadPatch(set=fields))
        return base_seq

    def _fork_name(self, batch: Batch) -> str:
        """Return the id of the fork: always the same for the same spool, so that a killed merge goes on with it."""
        digest = hashlib.sha256(f"{self._session_id}/{batch.records[0].event_id}".encode()).hexdigest()[:16]
        return f"{self._session_id[:40]}-spool-{digest}"


def is_marker(record: Record) -> bool:
    """Return True for the record that begins a spooled session and is no event."""
    return record.event_id == MARKER_ID and record.event_type == MARKER_TYPE


def _renumbered(patch: HeadPatch, final: Mapping[int, int], *, base_seq: int) -> HeadPatch:
    """Return the patch naming events by the numbers that they have now; those that did not come along it names no more."""

    def seqs(named: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        return {
            name: [final.get(seq, seq) for seq in values if seq <= base_seq or seq in final]
            for name, values in named.items()
        }

    return patch._replace(insert=seqs(patch.insert), discard=seqs(patch.discard))
