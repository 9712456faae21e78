"""A store around a store: every method passes the call on, so that a wrapper overrides only what it is about."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch
from kipu.ports.store import (
    MAX_PAGE,
    Appended,
    Binding,
    Damage,
    ErasureReceipt,
    EventStore,
    Hit,
    IndexEntry,
    Lease,
    Outcome,
    Page,
    Record,
    SearchQuery,
    SessionQuery,
    StoreDescription,
    StoredEvent,
    StoreMark,
    Tombstone,
)


def innermost(store: EventStore) -> EventStore:
    """Return the store that keeps the bytes, below everything that is wrapped around it."""
    while isinstance(store, WrappedStore):
        store = store.inner
    return store


class WrappedStore:
    """Be the store inside, call by call. Derive from it and override the methods of one concern."""

    def __init__(self, inner: EventStore) -> None:
        self.inner = inner

    def around(self, inner: EventStore) -> EventStore:
        """Return another store as this wrapper shows its own; the store itself where it changes nothing of what is read."""
        return inner

    def describe(self) -> StoreDescription:
        """Return what the inner store is."""
        return self.inner.describe()

    async def append(
        self,
        session_id: str,
        records: Sequence[Record],
        *,
        head: HeadPatch = EMPTY_PATCH,
        bind: Binding | None = None,
        token: int | None = None,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append to the inner store."""
        return await self.inner.append(
            session_id,
            records,
            head=head,
            bind=bind,
            token=token,
            expected_seq=expected_seq,
            idempotency_key=idempotency_key,
        )

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return events of the inner store."""
        return await self.inner.read(session_id, after=after, until=until, limit=limit, backwards=backwards)

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return what stands under which key in the inner store."""
        return await self.inner.outcomes(session_id)

    async def head(self, session_id: str) -> Head | None:
        """Return the inner store's head."""
        return await self.inner.head(session_id)

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return the inner store's page."""
        return await self.inner.list(query)

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Give terms to the inner store."""
        await self.inner.index(entries, indexed=indexed)

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Search the inner store."""
        return await self.inner.search(query)

    async def drop_index(self) -> None:
        """Drop the inner store's index."""
        await self.inner.drop_index()

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Bind a key in the inner store."""
        await self.inner.bind(key, session_id, expected=expected)

    async def resolve(self, key: str) -> str | None:
        """Resolve a key in the inner store."""
        return await self.inner.resolve(key)

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that lead to a session of the inner store."""
        return await self.inner.keys(session_id)

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Claim a lease from the inner store."""
        return await self.inner.claim(session_id, owner=owner, ttl_s=ttl_s)

    async def renew(self, lease: Lease) -> Lease:
        """Renew a lease of the inner store."""
        return await self.inner.renew(lease)

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give a lease back to the inner store."""
        return await self.inner.release(lease, expected_seq=expected_seq)

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return the inner store's work."""
        return await self.inner.runnable(now=now, limit=limit)

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Follow the inner store."""
        return self.inner.follow(session_id, after=after, types=types)

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep a blob in the inner store."""
        return await self.inner.put_blob(session_id, data)

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return a blob of the inner store."""
        return await self.inner.get_blob(session_id, digest)

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests in the inner store."""
        return await self.inner.blobs(session_id)

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Give shared events to the inner store."""
        return await self.inner.adopt(session_id, records, after=after, lease=lease)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let the inner store let go of a session's events."""
        await self.inner.offload(session_id, until=until, blobs=blobs, archive=archive, lease=lease)

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent] = (),
        *,
        lease: Lease,
        complete: bool = False,
        archive: Mapping[str, Any] | None = None,
    ) -> None:
        """Give events back to the inner store."""
        await self.inner.reload(session_id, events, lease=lease, complete=complete, archive=archive)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Erase a session from the inner store."""
        return await self.inner.erase(session_id, lease=lease)

    async def mark(self) -> StoreMark | None:
        """Return the inner store's mark."""
        return await self.inner.mark()

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Mark the inner store."""
        await self.inner.set_mark(mark, expected=expected)

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return the ids that were erased in the inner store."""
        return await self.inner.tombstones(after=after, limit=limit)

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Bury ids in the inner store."""
        await self.inner.bury(tombstones)

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return the inner store's damage."""
        return await self.inner.verify(session_id)

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()
