"""Two stores as one: while the primary refuses writes, a JSONL spool takes them, and gives them back afterwards (A49)."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from kipu.errors import (
    BlobNotFoundError,
    ConflictError,
    LeaseRequiredError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
    StoreUrlError,
)
from kipu.ports.clock import Clock
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
)
from kipu.stores.fallback_follow import follow_both
from kipu.stores.fallback_moving import MovingInPrimary
from kipu.stores.follow import Announcer, FollowPage, follow_pages, session_page
from kipu.stores.jsonl.store import JsonlStore
from kipu.stores.paging import encode_cursor, page_size
from kipu.stores.spool_merge import MARKER_TYPE, MergeReport, SpoolMerge
from kipu.stores.spool_seed import seed_session, seeded_at

T = TypeVar("T")
OpenPrimary = Callable[[], Awaitable[EventStore]]
StandIn = Callable[[], Awaitable[EventStore | None]]
_SEED_TRIES = 5


class FallbackStore(MovingInPrimary):
    """Append to the primary; while it refuses, to the spool, with numbers that are final after the merge.

    A session that the spool holds is merged before anything else happens to it, as soon as the primary answers. Reads show
    both, the newer history first. Errors other than "unavailable" and "full" pass: they are answers, not outages.
    """

    def __init__(
        self, open_primary: OpenPrimary, *, spool: JsonlStore, clock: Clock, stand_in: StandIn | None = None
    ) -> None:
        self._open_primary = open_primary
        self._stand_in = stand_in
        self._primary: EventStore | None = None
        self._spool = spool
        self._clock = clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._announcer = Announcer("fallback", changed=lambda: True)
        self.reports: list[MergeReport] = []

    @classmethod
    async def open(
        cls, open_primary: OpenPrimary, *, spool: EventStore, clock: Clock, stand_in: StandIn | None = None
    ) -> FallbackStore:
        """Open the pair. A primary that cannot be opened now is tried again at every call; what the spool holds is merged.

        `stand_in` gives an empty store to read from while the primary could never be made, and None where it may hold
        something: then a question that only it can answer is StoreUnavailableError, and never "no session" (A50).
        """
        if not isinstance(spool, JsonlStore):
            raise StoreUrlError(url=spool.describe().url, reason="a fallback is a jsonl:// store")
        store = cls(open_primary, spool=spool, clock=clock, stand_in=stand_in)
        try:
            await store._there()
            await store.recover()
        except StoreUnavailableError:
            pass
        except BaseException:
            await store.close()
            raise
        return store

    async def _there(self) -> EventStore:
        if self._primary is None:
            self._primary = await self._open_primary()
        return self._primary

    async def _readable(self) -> EventStore:
        """Return the primary for reading, or its stand-in. Raises: StoreUnavailableError."""
        try:
            return await self._there()
        except StoreUnavailableError:
            empty = await self._stand_in() if self._stand_in is not None else None
            if empty is None:
                raise
            return empty

    async def recover(self) -> builtins.list[MergeReport]:
        """Merge every session that the spool holds and say what became of each. Raises: StoreUnavailableError."""
        done = []
        for session_id in await self._spool.spool.session_ids():
            report = await self._merge(session_id)
            if report is not None:
                done.append(report)
        return done

    def _alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock of who decides where a session's next event goes: one call of this process at a time."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    async def _merge(self, session_id: str) -> MergeReport | None:
        """Merge one session, if the spool holds it. Raises: StoreUnavailableError while the primary refuses."""
        async with self._alone(session_id):
            return await self._merge_alone(session_id)

    async def _merge_alone(self, session_id: str) -> MergeReport | None:
        if not self._spool.spool.holds(session_id):
            return None
        merge = SpoolMerge(await self._there(), self._spool, session_id=session_id, clock=self._clock)
        report = await merge.run()
        self.reports.append(report)
        self._announcer.announce()
        return report

    async def _merged(self, session_id: str, *, alone: bool = False) -> bool:
        """Try to merge a session; return False when the spool still holds it."""
        if not self._spool.spool.holds(session_id):
            return True
        try:
            await (self._merge_alone(session_id) if alone else self._merge(session_id))
        except (StoreUnavailableError, LeaseRequiredError):
            return not self._spool.spool.holds(session_id)
        return True

    async def _key_is_merged(self, key: str | None, session_id: str) -> bool:
        """Return False while the spool knows better than the primary where a key leads."""
        other = await self._spool.resolve(key) if key is not None else None
        return other is None or other == session_id or await self._merged(other)

    async def _primary_or_spool(
        self,
        session_id: str,
        on_primary: Callable[[EventStore], Awaitable[T]],
        on_spool: Callable[[], Awaitable[T]],
        *,
        key: str | None = None,
    ) -> T:
        """Do something to a session, and to a key, in the primary, or in the spool while the primary refuses."""
        async with self._alone(session_id):
            refusal = None
            if await self._merged(session_id, alone=True) and await self._key_is_merged(key, session_id):
                try:
                    return await on_primary(await self._there())
                except StoreUnavailableError as error:
                    refusal = error
            for _ in range(_SEED_TRIES):
                await self._seed(session_id, refusal)
                try:
                    return await on_spool()
                except SessionNotFoundError:
                    continue  # merged by another process between the two
            raise refusal or StoreUnavailableError(store="fallback", reason="its spool is merged again and again")

    def describe(self) -> StoreDescription:
        """Return what this pair is."""
        spool = self._spool.describe()
        note = f"while it refuses writes, they go to {spool.url}"
        if self._primary is None:
            return replace(spool, notes=(*spool.notes, "its primary cannot be opened now"))
        primary = self._primary.describe()
        forks = tuple(f"{r.forked} events of {r.session_id} went to {r.forked_to}" for r in self.reports if r.forked_to)
        return replace(primary, notes=(*primary.notes, note, *forks))

    # -- appending -------------------------------------------------------------------------------------------------------

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
        """Append to the primary, or to the spool while the primary refuses or has not got back what the spool holds."""
        how: dict[str, Any] = {"head": head, "token": token, "expected_seq": expected_seq}
        how["idempotency_key"] = idempotency_key

        async def on_primary(primary: EventStore) -> Appended:
            return await primary.append(session_id, records, bind=bind, **how)

        async def on_spool() -> Appended:
            known = await self._spool.spool.known_outcome(idempotency_key) if idempotency_key is not None else None
            if known is not None:
                return known
            return await self._spool.append(session_id, records, bind=await self._binding_for_spool(bind), **how)

        if any(record.event_type == MARKER_TYPE for record in records):
            outcome = await self._begin(session_id, on_primary, on_spool, key=bind.key if bind else None)
        else:
            outcome = await self._primary_or_spool(session_id, on_primary, on_spool, key=bind.key if bind else None)
        self._announcer.announce()
        return outcome

    async def _begin(
        self,
        session_id: str,
        on_primary: Callable[[EventStore], Awaitable[Appended]],
        on_spool: Callable[[], Awaitable[Appended]],
        *,
        key: str | None,
    ) -> Appended:
        """Begin a session. Where the primary cannot even be asked whether it has one, the merge finds out."""
        async with self._alone(session_id):
            if await self._merged(session_id, alone=True) and await self._key_is_merged(key, session_id):
                try:
                    primary = await self._there()
                    try:
                        return await on_primary(primary)
                    except StoreUnavailableError:
                        if await primary.head(session_id) is not None:
                            raise SessionExistsError(session_id=session_id) from None
                except StoreUnavailableError:
                    pass
            return await on_spool()

    async def _binding_for_spool(self, bind: Binding | None) -> Binding | None:
        if bind is None:
            return None
        actual = await self.resolve(bind.key)
        if actual != bind.expected:
            raise ConflictError(session_id=bind.key, expected=bind.expected, actual=actual)
        return Binding(bind.key, await self._spool.resolve(bind.key))

    async def _seed(self, session_id: str, refusal: StoreUnavailableError | None) -> None:
        """Begin the session in the spool where the primary's log ends, with its head and its lease."""
        spooled = await self._spool.head(session_id) if self._spool.spool.holds(session_id) else None
        if spooled is not None and spooled.last_seq:
            return
        try:
            head = await (await self._readable()).head(session_id)
        except StoreUnavailableError as error:
            raise refusal or error from error
        if head is None or not head.last_seq:
            raise SessionNotFoundError(session_id=session_id)
        await seed_session(self._spool, head, clock=self._clock)

    # -- reading ---------------------------------------------------------------------------------------------------------

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return events of the primary and, behind them, of the spool."""
        limit = page_size(limit)
        if await self._merged(session_id):
            primary = await self._readable()
            return await primary.read(session_id, after=after, until=until, limit=limit, backwards=backwards)
        base = await seeded_at(self._spool, session_id)
        if base is None:
            return await self._spool.read(session_id, after=after, until=until, limit=limit, backwards=backwards)
        border = base.last_seq
        old = dict[str, Any](after=after, until=border if until is None else min(until, border), backwards=backwards)
        new = dict[str, Any](after=max(after, border), until=until, backwards=backwards)
        stores: list[tuple[EventStore, dict[str, Any]]] = [(await self._readable(), old), (self._spool, new)]
        events: list[StoredEvent] = []
        for store, where in reversed(stores) if backwards else stores:
            if len(events) < limit:
                events += await store.read(session_id, limit=limit - len(events), **where)
        return events

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return the session's batches that have a key; what the primary knows comes before what the spool took in again."""
        found = await self._of_both(session_id, lambda store: store.outcomes(session_id))
        return sorted({o.key: o for o in reversed(found)}.values(), key=lambda outcome: outcome.first_seq)

    async def _of_both(
        self, session_id: str, ask: Callable[[EventStore], Awaitable[builtins.list[T]]]
    ) -> builtins.list[T]:
        """Ask the primary, the spool, or one after the other, wherever the session is."""
        if await self._merged(session_id):
            return await ask(await self._readable())
        spooled = await ask(self._spool)
        return (
            spooled
            if await seeded_at(self._spool, session_id) is None
            else [*await ask(await self._readable()), *spooled]
        )

    async def head(self, session_id: str) -> Head | None:
        """Return the head with what the spool holds."""
        if await self._merged(session_id):
            return await (await self._readable()).head(session_id)
        return await self._spooled_head(session_id)

    async def _spooled_head(self, session_id: str) -> Head | None:
        head = await self._spool.head(session_id)
        if head is None:
            return None
        base = await seeded_at(self._spool, session_id)
        if base is None:
            return head
        return replace(head, base_seq=base.base_seq, offloaded_seq=base.offloaded_seq, archive=base.archive)

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads of both; a session that the spool holds is shown as the spool has it."""
        held = await self._held()
        page = await (await self._readable()).list(query)
        if not held:
            return page
        spooled = await self._spool.list(query)
        heads = {head.session_id: head for head in page.items if head.session_id not in held}
        for head in spooled.items:
            heads[head.session_id] = await self._spooled_head(head.session_id) or head
        ordered = sorted(heads.values(), key=lambda head: _place(head, query), reverse=query.descending)
        limit = page_size(query.limit)
        # A page of one store that is full may hide, behind its end, what belongs before the other's items.
        ends = [_place(p.items[-1], query) for p in (page, spooled) if p.cursor is not None and p.items]
        if ends:
            end = max(ends) if query.descending else min(ends)
            ordered = [h for h in ordered if (_place(h, query) >= end if query.descending else _place(h, query) <= end)]
        more = bool(ends) or len(ordered) > limit
        shown = ordered[:limit]
        last = _place(shown[-1], query) if shown else (ends[0] if ends else None)
        return Page(tuple(shown), encode_cursor(*last) if more and last else None)

    async def _held(self) -> set[str]:
        """Try to merge everything; return the ids of the sessions that the spool still holds."""
        return {
            session_id for session_id in await self._spool.spool.session_ids() if not await self._merged(session_id)
        }

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work of both."""
        held = await self._held()
        found = [h for h in await self._spool.runnable(now=now, limit=limit) if h.session_id in held] if held else []
        try:
            # The primary does not know that sessions of the spool are held, or have nothing to do any more.
            others = await (await self._readable()).runnable(now=now, limit=limit + len(held))
        except StoreUnavailableError:
            if not held:
                raise
            others = []
        found += [head for head in others if head.session_id not in held]
        found.sort(key=lambda head: (head.due_at or head.last_event_at, head.session_id))
        return found[: page_size(limit)]

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one, wherever it is kept; without a session, all."""
        if session_id is None:
            return follow_both(self._primary, self._spool, types=types)

        async def read_page(place: int) -> FollowPage[int]:
            return session_page(await self.read(session_id, after=place), after=place, limit=MAX_PAGE)

        return follow_pages(read_page, self._announcer, after=after, types=types)

    # -- the rest --------------------------------------------------------------------------------------------------------

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Take in terms of what the primary has; what the spool holds is indexed after its merge."""
        held = await self._held()
        kept = [entry for entry in entries if entry.session_id not in held]
        moved = {session_id: seq for session_id, seq in indexed.items() if session_id not in held}
        if kept or moved:
            await (await self._there()).index(kept, indexed=moved)

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Return events of the primary that hold every phrase."""
        return await (await self._readable()).search(query)

    async def drop_index(self) -> None:
        """Forget every term of the primary."""
        await (await self._there()).drop_index()

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id`, where the session is."""

        async def on_spool() -> None:
            spooled = await self._binding_for_spool(Binding(key, expected))
            await self._spool.bind(key, session_id, expected=spooled.expected if spooled else None)

        await self._primary_or_spool(
            session_id, lambda primary: primary.bind(key, session_id, expected=expected), on_spool, key=key
        )

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to: a binding in the spool is the newer one."""
        spooled = await self._spool.resolve(key)
        return spooled if spooled is not None else await (await self._readable()).resolve(key)

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session."""
        found = sorted(set(await self._of_both(session_id, lambda store: store.keys(session_id))))
        return [key for key in found if await self.resolve(key) == session_id]

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease, after what the spool holds was merged; while the primary refuses, one of the spool."""
        return await self._primary_or_spool(
            session_id,
            lambda primary: primary.claim(session_id, owner=owner, ttl_s=ttl_s),
            lambda: self._spool.claim(session_id, owner=owner, ttl_s=ttl_s),
        )

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        return await self._primary_or_spool(
            lease.session_id, lambda primary: primary.renew(lease), lambda: self._spool.renew(lease)
        )

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since."""
        return await self._primary_or_spool(
            lease.session_id,
            lambda primary: primary.release(lease, expected_seq=expected_seq),
            lambda: self._spool.release(lease, expected_seq=expected_seq),
        )

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` where the session's next event will be kept."""
        return await self._primary_or_spool(
            session_id,
            lambda primary: primary.put_blob(session_id, data),
            lambda: self._spool.put_blob(session_id, data),
        )

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes, wherever they are."""
        if not await self._merged(session_id):
            try:
                return await self._spool.get_blob(session_id, digest)
            except BlobNotFoundError:
                pass
        return await (await self._readable()).get_blob(session_id, digest)

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the session's blobs in both."""
        return sorted(set(await self._of_both(session_id, lambda store: store.blobs(session_id))))

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Merge what the spool holds, then remove everything of the session."""
        await self._merge(session_id)
        await self._spool.spool.discard_damaged(session_id)
        return await (await self._there()).erase(session_id, lease=lease)

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return what is damaged in either."""
        if session_id is not None:
            return await self._of_both(session_id, lambda store: store.verify(session_id))
        return [*await (await self._readable()).verify(), *await self._spool.verify()]

    async def close(self) -> None:
        """Close both."""
        self._announcer.close()
        try:
            if self._primary is not None:
                await self._primary.close()
        finally:
            await self._spool.close()


def _place(head: Head, query: SessionQuery) -> tuple[str, str]:
    return (getattr(head, query.order), head.session_id)
