"""The store contract over one Valkey or Redis server, for any number of processes on any machines."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from kipu.errors import InputError, SearchUnavailableError, SessionNotFoundError, StoreClosedError
from kipu.ports.clock import Clock
from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch, head_from_json
from kipu.ports.owner import Liveness
from kipu.ports.store import (
    MAX_PAGE,
    Appended,
    Binding,
    Damage,
    ErasureReceipt,
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
from kipu.stores.admission import AppendRequest
from kipu.stores.follow import Announcer, FollowPage, follow_pages, session_page
from kipu.stores.paging import page_size
from kipu.stores.server_clock import ServerClock
from kipu.stores.valkey import listing
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.appending import Appender
from kipu.stores.valkey.changes import Changes
from kipu.stores.valkey.event_value import MOST_BYTES
from kipu.stores.valkey.following import Everything
from kipu.stores.valkey.format import prepare
from kipu.stores.valkey.heads import Heads
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.news import News
from kipu.stores.valkey.reading import Reader
from kipu.stores.valkey.server import Server
from kipu.stores.valkey.writing import ANY_VERSION, Change, Writer

_FOLLOWED_EVENTS = 256


class ValkeyStore:
    """Keep sessions in Valkey. See docs/formats/valkey.md; requirements VK-1 and on."""

    def __init__(self, server: Server, *, clock: Clock, liveness: Liveness) -> None:
        keys = KeyNames(server.address.prefix)
        self._server = server
        self._keys = keys
        self._clock = clock
        self._liveness = liveness
        self._closed = False
        self._beginning: set[asyncio.Future[None]] = set()
        self._announcer = Announcer(server.url)
        self._news = News(server, keys, announcer=self._announcer)
        self._heads = Heads(server, keys)
        self._writer = Writer(server, keys, news=self._news)
        parts: dict[str, Any] = {"heads": self._heads, "writer": self._writer, "clock": clock, "liveness": liveness}
        self._appender = Appender(server, keys, **parts)
        self._changes = Changes(server, keys, **parts)
        self._reader = Reader(server, keys, heads=self._heads)

    @classmethod
    async def open(cls, url: str, *, liveness: Liveness, clock: Clock | None = None) -> ValkeyStore:
        """Connect. Without a clock the server's counts, for all machines.

        Raises: StoreUrlError, StoreUnavailableError, StoreReadOnlyError, NewerFormatError; ConfigurationError where the server is
        set to lose what it should keep.
        """
        server = Server(Address.parse(url, environment=os.environ))
        store: ValkeyStore | None = None
        try:
            await prepare(server, KeyNames(server.address.prefix))
            if clock is None:
                clock = ServerClock(lambda: _server_now_us(server))
                await clock.look()
            store = cls(server, clock=clock, liveness=liveness)
            await store._changes.mark()
            await store._changes.finish_all_erasing()
            await store._news.open()
        except BaseException:
            if store is not None:
                await store.close()
            await server.close()
            raise
        return store

    @property
    def clock(self) -> Clock:
        """Return the clock by which everything here goes: the server's, unless another was given."""
        return self._clock

    @property
    def address(self) -> Address:
        """Return where the server is; what it prints has no password."""
        return self._server.address

    def describe(self) -> StoreDescription:
        """Return what this store is, and what its server is set to lose."""
        settings = self._server.settings
        notes: tuple[str, ...] = ()
        if not self._news.is_heard:
            notes += ("notices of other machines do not get through here: they are looked for 25 times a second",)
        if settings.durability not in {"fsync", "unknown"}:
            notes += ("a crash of the server may take what was acknowledged: CONFIG SET appendfsync always keeps it",)
        return StoreDescription(
            url=self._server.url,
            kind="valkey",
            durability=settings.durability,
            loss_window=settings.loss_window,
            search=False,
            notes=notes,
        )

    # ---- appending -------------------------------------------------------------------------------------------------

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
        """Append `records` as one batch, or nothing of it."""
        await self._may_write()
        request = AppendRequest(session_id, records, head, bind, token, expected_seq, idempotency_key)
        return await self._server.seen_through(self._appender.append(request))

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return at most `limit` own events with after < seq <= until: the first ones, or the last, newest first."""
        await self._may_read()
        limit = page_size(limit)
        return await self._reader.read(session_id, after=after, until=until, limit=limit, backwards=backwards)

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return the session's batches that have a key within its retention, in order."""
        self._check_open()
        return await self._reader.outcomes(session_id, now_us=self._clock.now_us())

    async def head(self, session_id: str) -> Head | None:
        """Return the head, or None where there is no such session."""
        await self._may_read()
        row = await self._heads.load(session_id)
        return None if row.data is None else head_from_json(row.data)

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads; a page costs the same however deep it is."""
        await self._may_read()
        return await listing.page(self._server, query, keys=self._keys)

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work that is due and without a live lease, those due longest first."""
        self._check_open()
        return await listing.runnable(self._server, self._keys, liveness=self._liveness, now=now, limit=limit)

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one, from any machine; without a session, all from now on."""
        self._check_open()
        if session_id is None:
            everything = Everything(self._server, self._keys, reader=self._reader)
            # It begins here and not at the first look: what this process appends from now on comes after.
            beginning = asyncio.ensure_future(everything.begin())
            self._beginning.add(beginning)
            beginning.add_done_callback(self._begun)
            return follow_pages(everything.read_page, self._announcer, after=None, types=types)

        async def read_page(place: int) -> FollowPage[int]:
            events = await self.read(session_id, after=place, limit=_FOLLOWED_EVENTS)
            return session_page(events, after=place, limit=_FOLLOWED_EVENTS)

        return follow_pages(read_page, self._announcer, after=after, types=types)

    def _begun(self, beginning: asyncio.Future[None]) -> None:
        self._beginning.discard(beginning)
        if not beginning.cancelled():
            beginning.exception()  # whoever follows begins anew, and is told then

    # ---- searching -------------------------------------------------------------------------------------------------

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Refuse: there is no index here. Raises: SearchUnavailableError, which says what to do."""
        raise self._no_search()

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Refuse: there is no index here. Raises: SearchUnavailableError, which says what to do."""
        raise self._no_search()

    async def drop_index(self) -> None:
        """Refuse: there is no index here. Raises: SearchUnavailableError, which says what to do."""
        raise self._no_search()

    def _no_search(self) -> SearchUnavailableError:
        self._check_open()
        return SearchUnavailableError(store=self._server.url)

    # ---- keys and leases -------------------------------------------------------------------------------------------

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id` if it now leads to `expected`."""
        await self._may_write()
        await self._server.seen_through(self._appender.bind(key, session_id, expected=expected))

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        self._check_open()
        return await self._appender.bound_to(key)

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session."""
        self._check_open()
        return await self._reader.keys(session_id)

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live."""
        await self._may_write()
        return await self._server.seen_through(self._changes.claim(session_id, owner=owner, ttl_s=ttl_s))

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        await self._may_write()
        return await self._server.seen_through(self._changes.renew(lease))

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""
        await self._may_write()
        return await self._server.seen_through(self._changes.release(lease, expected_seq=expected_seq))

    # ---- blobs -----------------------------------------------------------------------------------------------------

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` and return its digest."""
        await self._may_write()
        if len(data) > MOST_BYTES:
            raise InputError(reason=f"a blob of {len(data)} bytes: this store keeps up to {MOST_BYTES}")
        digest = hashlib.sha256(data).hexdigest()
        command = ("HSET", self._keys.of(session_id).blobs, digest, bytes(data))
        outcome = await self._server.seen_through(self._changes.repeated(Change(session_id, ANY_VERSION, [command])))
        if not outcome.is_done:
            raise SessionNotFoundError(session_id=session_id)
        return digest

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes."""
        self._check_open()
        return await self._reader.blob(session_id, digest)

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the session's own blobs."""
        self._check_open()
        return await self._reader.blobs(session_id)

    # ---- copies, archives, the end -----------------------------------------------------------------------------------

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Take in shared events, out of sight for now."""
        await self._may_write()
        return await self._server.seen_through(self._changes.adopt(session_id, records, after=after, lease=lease))

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of the session's events and of these blobs, by one script."""
        await self._may_write()
        work = self._changes.offload(session_id, until=until, blobs=blobs, archive=archive, lease=lease)
        await self._server.seen_through(work)

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent] = (),
        *,
        lease: Lease,
        complete: bool = False,
        archive: Mapping[str, Any] | None = None,
    ) -> None:
        """Take events back, out of sight until it is `complete`."""
        await self._may_write()
        work = self._changes.reload(session_id, events, lease=lease, complete=complete, archive=archive)
        await self._server.seen_through(work)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove every key of the session. What the server's files keep until they are rewritten: docs/formats/valkey.md."""
        await self._may_write()
        return await self._server.seen_through(self._changes.erase(session_id, lease=lease))

    async def mark(self) -> StoreMark | None:
        """Return the store's mark."""
        self._check_open()
        return await self._changes.mark()

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Let the store have this mark if it now has `expected`."""
        await self._may_write()
        await self._server.seen_through(self._changes.set_mark(mark, expected=expected))

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return ids that were erased, sorted."""
        self._check_open()
        return await self._changes.tombstones(after=after, limit=page_size(limit))

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again."""
        await self._may_write()
        await self._server.seen_through(self._changes.bury(tombstones))

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return what is damaged in one session, or in all."""
        self._check_open()
        return await self._reader.verify(session_id)

    async def close(self) -> None:
        """End every follower and close every connection."""
        if not self._closed:
            self._closed = True
            self._announcer.close()
            for beginning in self._beginning:
                beginning.cancel()
            await self._news.close()
            await self._server.close()

    async def _may_write(self) -> None:
        await self._may_read()
        if isinstance(self._clock, ServerClock):
            await self._clock.look()

    async def _may_read(self) -> None:
        """Let followers begin first: what is not read here yet comes to them, so that nothing falls between the two."""
        self._check_open()
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=self._server.url)


async def _server_now_us(server: Server) -> int:
    seconds, microseconds = await server.ask("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)
