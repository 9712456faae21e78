"""Letting a fork stand alone: it takes over copies of the events and blobs that it shares, sealed as its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

from kipu.errors import BlobNotFoundError
from kipu.events.boundary import ForkDetachedEvent
from kipu.manager.loader import spans_of
from kipu.manager.lost_events import WholeHistory
from kipu.manager.writer import EventWriter
from kipu.ports.head import Head
from kipu.ports.store import EventStore, Lease, StoredEvent
from kipu.session.branch import Span
from kipu.session.patch import patch_for

_DIGEST = re.compile(rb"[0-9a-f]{64}")
_DEPTH = 4  # a checkpoint's manifest names parts, and those name files


async def detach(store: EventStore, head: Head, *, lease: Lease, writer: EventWriter) -> bool:
    """Make what the fork shares its own; False where it shares nothing. Killed at any point, it goes on when called again.

    Seqs, ids, times and bodies stay: what its windows were can still be replayed (C6). Until the last step, one append,
    nothing of it is seen. Raises: SessionNotFoundError, LeaseLostError, StoreError.
    """
    if not head.base_seq or head.forked_from is None:
        return False
    session_id, base_seq = head.session_id, head.base_seq
    spans = [span for span in await spans_of(store, head) if span.session_id != session_id]
    copied = await store.adopt(session_id, lease=lease)
    async for page in _pages(store, spans, after=copied):
        await _copy_blobs(store, page, to=session_id)
        records = [stored.record for stored in page]
        await store.adopt(session_id, records, after=page[0].seq - 1, lease=lease)
    event = ForkDetachedEvent(parent=head.forked_from, base_seq=base_seq)
    prepared = await writer.prepare(session_id, event)
    await store.append(session_id, [prepared.record], head=patch_for([prepared.event]), token=lease.token)
    return True


async def _pages(store: EventStore, spans: list[Span], *, after: int) -> AsyncIterator[list[StoredEvent]]:
    """Yield what is shared and not taken in yet; where a parent has lost a record, a `damaged` event stands (C16)."""
    for span in spans:
        head = await store.head(span.session_id)
        if head is None or span.until <= after:
            continue
        part = replace(head, base_seq=span.after, last_seq=span.until)
        async for page in WholeHistory(store, part).pages():
            new = [kept.stored for kept in page if kept.stored.seq > after]
            if new:
                yield new


async def _copy_blobs(store: EventStore, page: list[StoredEvent], *, to: str) -> None:
    """Copy the blobs that these events name, and those that are named in them, and no other: the rest goes with its session."""
    source = page[0].session_id
    there, kept = set(await store.blobs(source)), set(await store.blobs(to))
    wanted = {digest for stored in page for digest in _named(stored.record.body)} & there
    for _ in range(_DEPTH):
        found: set[str] = set()
        for digest in wanted - kept:
            try:
                data = await store.get_blob(source, digest)
            except BlobNotFoundError:
                continue
            found |= _named(data) & there
            await store.put_blob(to, data)
        kept |= wanted
        wanted = found
        if not wanted - kept:
            return


def _named(data: bytes) -> set[str]:
    return {match.decode() for match in _DIGEST.findall(data)}
