"""The JSONL store: one folder of line files per session, and an index that can be thrown away."""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TypeVar

from kipu.errors import (
    BlobNotFoundError,
    ConflictError,
    LeaseLostError,
    NewerFormatError,
    SessionNotFoundError,
    StoreClosedError,
    StoreCorruptError,
    StoreReadOnlyError,
    StoreUrlError,
)
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
)
from kipu.stores.admission import AppendRequest
from kipu.stores.file_system import file_system_kind
from kipu.stores.follow import Announcer, FollowPage, follow_pages, session_page
from kipu.stores.host import this_process_owner
from kipu.stores.jsonl.backlog import WRITE_AFTER_S
from kipu.stores.jsonl.blobs import blob_digests, put_blob
from kipu.stores.jsonl.desk import Desk
from kipu.stores.jsonl.erasing import erase_session, finish_erasures
from kipu.stores.jsonl.failure import translating
from kipu.stores.jsonl.layout import settled
from kipu.stores.jsonl.lease import LeaseState, lease_of
from kipu.stores.jsonl.lock import locks_fail
from kipu.stores.jsonl.log import LogView
from kipu.stores.jsonl.moving import MovingEvents
from kipu.stores.jsonl.queue import CommitQueue
from kipu.stores.jsonl.settings import BUFFER_S, FORMAT, LOSS_WINDOWS, SEGMENT_BYTES, Durability, Settings
from kipu.stores.jsonl.shared import read_page
from kipu.stores.jsonl.shelf import WAIT_S, OpenLog, Shelf
from kipu.stores.jsonl.spool import Spool
from kipu.stores.jsonl.tracking import QUICK_EVENTS, Tracker
from kipu.stores.jsonl.verifying import verify_store
from kipu.stores.leasing import claimed, released, renewed
from kipu.stores.offloading import is_whole, refuse_archived
from kipu.stores.paging import page_size
from kipu.stores.tables import engine, head_table

T = TypeVar("T")
_LOOKS = 4


class JsonlStore(MovingEvents):
    """Keep sessions as lines in files. See docs/formats/jsonl.md; requirements JL-1 and on."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._settings = shelf.settings
        self._desk = Desk(shelf)
        self._announcer = Announcer(shelf.settings.url, changed=self._desk.changed)
        self._queue = CommitQueue(shelf, committed=self._committed)
        self._timer: asyncio.TimerHandle | None = None
        self._index_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        root: str | os.PathLike[str],
        *,
        clock: Clock,
        liveness: Liveness,
        durability: Durability = "fsync",
        segment_bytes: int = SEGMENT_BYTES,
        network: str = "auto",
        index: str = "",
        kind_of: Callable[[str], str] = file_system_kind,
        try_locks: Callable[[str], str] = locks_fail,
        name: str = "store",
        url: str | None = None,
    ) -> JsonlStore:
        """Open the store in a folder, which is made where there is none, without keeping the event loop waiting.

        A folder of a newer format is opened for reading only. What a dead process left is put in order first.
        """
        return await asyncio.to_thread(
            cls.open_now,
            root,
            clock=clock,
            liveness=liveness,
            durability=durability,
            segment_bytes=segment_bytes,
            network=network,
            index=index,
            kind_of=kind_of,
            try_locks=try_locks,
            name=name,
            url=url,
        )

    @classmethod
    def open_now(
        cls,
        root: str | os.PathLike[str],
        *,
        clock: Clock,
        liveness: Liveness,
        durability: Durability = "fsync",
        segment_bytes: int = SEGMENT_BYTES,
        network: str = "auto",
        index: str = "",
        kind_of: Callable[[str], str] = file_system_kind,
        try_locks: Callable[[str], str] = locks_fail,
        name: str = "store",
        url: str | None = None,
    ) -> JsonlStore:
        """Open the store as `open` does, for whoever constructs one where nothing can be awaited."""
        engine.check_engine()
        path = os.path.abspath(root)
        address = url or f"jsonl://{path}"
        if durability not in LOSS_WINDOWS:
            raise StoreUrlError(url=address, reason=f"durability is one of {', '.join(LOSS_WINDOWS)}")
        settings = settled(
            Settings(path, address, durability, segment_bytes),
            network=network,
            index=index,
            kind=kind_of(path),
            try_locks=try_locks,
        )
        owner = this_process_owner(f"{name}-{os.urandom(6).hex()}")
        shelf = Shelf(settings, clock=clock, liveness=liveness, owner=owner)
        try:
            store = cls(shelf)
            store._begin()
        except BaseException:
            shelf.close()
            raise
        return store

    def _begin(self) -> None:
        with translating(self._settings.url):
            finish_erasures(self._shelf)
            with self._shelf.indexing(wait_s=WAIT_S):
                dead = self._shelf.dead_writers()
            if dead:
                self._shelf.refresh_all()

    def describe(self) -> StoreDescription:
        """Return what this store is."""
        settings = self._settings
        return StoreDescription(
            settings.url,
            "jsonl",
            settings.durability,
            LOSS_WINDOWS[settings.durability],
            search=True,
            read_only=settings.read_only,
            notes=settings.notes,
        )

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
        """Append `records` as one batch, or nothing of it."""
        self._check_writable()
        request = AppendRequest(session_id, records, head, bind, token, expected_seq, idempotency_key)
        return await self._queue.append(request)

    def _committed(self, types: AbstractSet[str]) -> None:
        self._announcer.announce(types)
        self._index_soon()
        self._sync_soon()

    def _sync_soon(self) -> None:
        if self._settings.durability == "buffered" and not (self._closed or self._timer) and self._shelf.dirty_logs():
            self._timer = asyncio.get_running_loop().call_later(BUFFER_S, self._sync_later)

    def _index_soon(self) -> None:
        if self._index_timer is None and self._shelf.backlog and not self._closed:
            self._index_timer = asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._write_backlog)

    def _write_backlog(self) -> None:
        self._index_timer = None
        try:
            self._shelf.backlog.write(wait_s=0)
        except BlockingIOError:  # a commit is under way, in a thread or in another process
            self._index_soon()

    def _sync_later(self) -> None:
        self._timer = None
        for opened in self._shelf.dirty_logs():
            # What fails here is tried again, by the clock and by the session's next append, which says so.
            with suppress(OSError):
                opened.log.sync_written()
        self._sync_soon()

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
        """Return at most `limit` own events with after < seq <= until: the first ones, or the last, newest first."""
        limit = page_size(limit)

        def page(opened: OpenLog, view: LogView) -> list[StoredEvent]:
            row = {"session_id": session_id, **view.row}
            refuse_archived(row, after=after, until=until, limit=limit, backwards=backwards)
            last = view.last_seq if until is None else until
            return read_page(opened, view, after=after, until=last, limit=limit, backwards=backwards)

        found: list[StoredEvent] = []
        for _ in range(_LOOKS):  # until the page is of one moment: an archive may take or give events meanwhile
            opened, view = await self._view(session_id)
            with translating(self._settings.url):
                try:
                    found = page(opened, view) if limit <= QUICK_EVENTS else await asyncio.to_thread(page, opened, view)
                except (StoreCorruptError, FileNotFoundError):
                    view = await asyncio.to_thread(self._desk.looked_at_anew, session_id)
                    found = page(opened, view)
            is_settled = after >= view.last_seq or opened.log.view is view
            if is_settled or is_whole(found, after=after, limit=limit, backwards=backwards):
                break
        return found

    async def _view(self, session_id: str) -> tuple[OpenLog, LogView]:
        """Return the session's log as it is now. Raises: SessionNotFoundError."""
        self._check_open()
        with translating(self._settings.url):
            opened = self._shelf.open_log(session_id)
            view = opened.log.view
            if view is not None and opened.log.is_current() and opened.log.view is view:
                return opened, view
            return await self._desk.run(lambda wait_s: self._desk.refreshed(session_id, wait_s=wait_s))

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return the session's batches that have a key within its retention, in order."""
        await self._view(session_id)
        with translating(self._settings.url):
            return await asyncio.to_thread(self._desk.outcomes, session_id)

    async def head(self, session_id: str) -> Head | None:
        """Return the head, or None where there is no such session."""
        try:
            opened, view = await self._view(session_id)
        except SessionNotFoundError:
            return None
        with translating(self._settings.url):
            lease = opened.lease.read(now_us=self._shelf.now_us())
        indexed = await self._desk.indexed_seq(session_id)
        row = lease.onto({"session_id": session_id, **view.row})
        return head_from_json({**row, "indexed_seq": min(indexed, view.last_seq)})

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads. The first call of a process compares the index with the logs."""
        self._check_open()
        with translating(self._settings.url):
            await self._desk.catch_up()
            return await self._desk.ask(lambda index: head_table.page(index.connection, query))

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work that is due and without a live lease, those due longest first."""
        self._check_open()
        return await self._desk.runnable(now=now, limit=limit)

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one; without a session, all from now on."""
        self._check_open()
        if session_id is None:
            tracker = Tracker(self._desk, self._shelf.notes, read=self.read)
            return follow_pages(tracker.read_page, self._announcer, after=None, types=types)
        return follow_pages(self._events_after(session_id), self._announcer, after=after, types=types)

    def _events_after(self, session_id: str) -> Callable[[int], Awaitable[FollowPage[int]]]:
        async def read_page(place: int) -> FollowPage[int]:
            events = await self.read(session_id, after=place, limit=QUICK_EVENTS)
            return session_page(events, after=place, limit=QUICK_EVENTS)

        return read_page

    # -- searching -------------------------------------------------------------------------------------------------------

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Take in terms and move `indexed_seq` of the named sessions, together."""
        self._check_open()  # also for reading only: the index is in memory then
        await asyncio.to_thread(self._desk.take_terms, entries, indexed)

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Return events that hold every phrase, newest first."""
        self._check_open()
        with translating(self._settings.url):
            return await self._desk.search(query)

    async def drop_index(self) -> None:
        """Forget every term and set every `indexed_seq` to 0."""
        self._check_writable()
        await asyncio.to_thread(self._desk.drop_terms)

    # -- bindings --------------------------------------------------------------------------------------------------------

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id` if it now leads to `expected`."""
        self._check_writable()
        await self._view(session_id)

        def change(wait_s: float) -> None:
            bindings = self._shelf.bindings
            with bindings.lock.held(wait_s=wait_s):
                self._shelf.mark.check()
                bindings.refresh(self._shelf.settle)
                actual = bindings.get(key).session_id
                if actual != expected:
                    raise ConflictError(session_id=key, expected=expected, actual=actual)
                bindings.put(key, session_id)

        with translating(self._settings.url):
            await self._desk.run(change)

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        self._check_open()

        def look(wait_s: float) -> str | None:
            bindings = self._shelf.bindings
            with bindings.lock.held(wait_s=wait_s):
                bindings.refresh(self._shelf.settle)
                return bindings.get(key).session_id

        with translating(self._settings.url):
            return await self._desk.run(look)

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session."""
        await self._view(session_id)
        with translating(self._settings.url):
            return sorted(await self._desk.run(lambda wait_s: self._desk.keys_of(session_id, wait_s=wait_s)))

    # -- leases ----------------------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live."""
        self._check_writable()
        liveness = self._shelf.liveness

        def change(row: dict[str, object], now_us: int) -> tuple[LeaseState | None, Lease | None]:
            self._shelf.mark.check(claims=True)
            outcome = claimed(row, owner=owner, ttl_s=ttl_s, now_us=now_us, liveness=liveness)
            return (lease_of(outcome[0]), outcome[1]) if outcome else (None, None)

        with translating(self._settings.url):
            return await self._desk.lease(session_id, change)

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        self._check_writable()

        def change(row: dict[str, object], now_us: int) -> tuple[LeaseState | None, Lease]:
            self._shelf.mark.check()
            after, fresh = renewed(row, lease, now_us=now_us)
            return lease_of(after), fresh

        try:
            with translating(self._settings.url):
                return await self._desk.lease(lease.session_id, change)
        except SessionNotFoundError:
            raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=None) from None

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""
        self._check_writable()

        def change(row: dict[str, object], now_us: int) -> tuple[LeaseState | None, bool]:
            outcome = released(row, lease, expected_seq=expected_seq)
            return (None, outcome) if isinstance(outcome, bool) else (lease_of(outcome), True)

        try:
            with translating(self._settings.url):
                return await self._desk.lease(lease.session_id, change)
        except SessionNotFoundError:
            return True

    # -- blobs, erasure, damage ------------------------------------------------------------------------------------------

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` durably and return its digest."""
        self._check_writable()

        def keep() -> str:
            with self._shelf.locked(session_id, wait_s=WAIT_S) as opened:
                self._shelf.mark.check()
                return put_blob(opened.log.folder, data, sync=self._settings.syncs)

        await self._view(session_id)
        with translating(self._settings.url):
            return await asyncio.to_thread(keep)

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes."""
        self._check_open()
        with translating(self._settings.url):
            data = await asyncio.to_thread(self._shelf.blob, session_id, digest)
        if data is None:
            raise BlobNotFoundError(session_id=session_id, digest=digest)
        return data

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the session's own blobs."""
        opened, _ = await self._view(session_id)
        with translating(self._settings.url):
            return blob_digests(opened.log.folder)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove everything of the session and leave a tombstone."""
        self._check_writable()
        await self._queue.drain()

        def remove() -> ErasureReceipt:
            with translating(self._settings.url):
                return erase_session(self._shelf, session_id, lease=lease)

        receipt = await asyncio.to_thread(remove)
        self._announcer.announce()
        return receipt

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return what is damaged in one session, or in the whole store."""
        self._check_open()
        if session_id is not None:
            await self._view(session_id)
        with translating(self._settings.url):
            return await asyncio.to_thread(verify_store, self._shelf, session_id)

    @property
    def spool(self) -> Spool:
        """Return what a fallback needs of this store beyond the contract."""
        return Spool(self._shelf, self._desk)

    async def close(self) -> None:
        """Commit what was accepted, put it on the medium and close every file."""
        if self._closed:
            return
        self._closed = True
        self._announcer.close()
        await self._queue.drain()
        if self._timer is not None:
            self._timer.cancel()
        self._sync_later()
        if self._index_timer is not None:
            self._index_timer.cancel()
        self._queue.close()
        await asyncio.to_thread(self._desk.close)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=self._settings.url)

    def _check_writable(self) -> None:
        self._check_open()
        if not self._settings.writable:
            raise StoreReadOnlyError(store=self._settings.url, reason="the folder may not be written")
        if self._settings.read_only:
            raise NewerFormatError(store=self._settings.url, found=self._settings.format, known=FORMAT)
