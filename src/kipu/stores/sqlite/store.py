"""The store contract over one SQLite file."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import Any, TypeVar

import apsw

from kipu.errors import (
    BlobNotFoundError,
    KipuError,
    SessionNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
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
from kipu.stores.offloading import is_whole, refuse_archived
from kipu.stores.paging import page_size
from kipu.stores.sqlite import changes, erasure, event_table, letting_go
from kipu.stores.sqlite.appending import append_records
from kipu.stores.sqlite.committer import Committer, Job
from kipu.stores.sqlite.connection import DatabaseFile, absolute, create_file, is_immutable, prepare, refuse_network
from kipu.stores.sqlite.marking import MarkInDatabase
from kipu.stores.sqlite.readers import Readers
from kipu.stores.sqlite.verification import verify
from kipu.stores.tables import head_table, key_tables, search_table
from kipu.stores.tables.driver_errors import translated
from kipu.stores.tables.engine import check_engine
from kipu.stores.tables.heads import Heads
from kipu.stores.times import iso_from_us

T = TypeVar("T")

_LOSS = {
    "fsync": "nothing",
    "buffered": "the last 10 events or the last second",
    "os": "what the operating system has not written; the file stays whole",
}
_NO_NEWS: frozenset[str] = frozenset()  # what changes nothing that a follower is given
_LOOKS = 4
_QUICK_EVENTS = 256  # up to so many are read in place
_QUICK_BYTES = 256 * 1024
_INDEX_AT_ONCE = 128  # an append waits no longer than for so many: 30 ms where they are long


class SqliteStore(MarkInDatabase):
    """Keep sessions in one file, with one writing connection in this process and others beside it in other processes."""

    def __init__(
        self,
        file: DatabaseFile,
        writer: apsw.Connection,
        *,
        clock: Clock,
        liveness: Liveness,
        durability: str,
        refusal: KipuError | None,
    ) -> None:
        self._file = file
        self._url = file.url
        self._writer = writer
        self._clock = clock
        self._liveness = liveness
        self._durability = durability
        self._refusal = refusal
        self._closed = False
        self._readers = Readers(file)
        self._announcer = Announcer(file.url, changed=self._readers.changed)
        self._committer = Committer(
            Heads(writer, store=file.url),
            store=file.url,
            durability=durability,
            wal=file.wal,
            committed=self._announcer.announce,
        )

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        clock: Clock,
        liveness: Liveness,
        durability: str = "fsync",
        network: str = "refuse",
        read_only: bool = False,
        kind_of: Callable[[str], str] = file_system_kind,
        vfs: str | None = None,
        url: str | None = None,
    ) -> SqliteStore:
        """Open the database at `path`, making it where it is missing.

        `network="allow"` accepts a network file system, with a rollback journal instead of the log. A database that may not
        be written, or that a newer Kipu wrote, is opened for reading.
        Raises: StoreUrlError, NetworkFileSystemError, ConfigurationError, StoreUnavailableError, StoreCorruptError.
        """
        url = url or f"sqlite:///{path}"
        _check_settings(url, durability=durability, network=network)
        check_engine()
        with translated(url):
            place = absolute(path)
            remote = refuse_network(place, kind=kind_of(place), allowed=network == "allow", url=url)
            if os.path.isdir(place):  # noqa: ASYNC240
                raise StoreUrlError(url=url, reason="it names a folder, and a SQLite store is a file")
            immutable = is_immutable(place)
            read_only = read_only or immutable
            if not read_only:
                create_file(place)
            file = DatabaseFile(place, url, wal=not remote, read_only=read_only, vfs=vfs, immutable=immutable)
            writer = file.connect()
            try:
                refusal = prepare(writer, file)
                store = cls(file, writer, clock=clock, liveness=liveness, durability=durability, refusal=refusal)
            except BaseException:
                writer.close()
                raise
        if refusal is None:
            await store._finish_erasures()
        return store

    def describe(self) -> StoreDescription:
        """Return what this store is."""
        notes: tuple[str, ...] = () if self._refusal is None else (str(self._refusal),)
        if not self._file.wal:
            notes += ("on a network file system: a rollback journal, and locks only as good as the server's",)
        return StoreDescription(
            url=self._url,
            kind="sqlite",
            durability=self._durability,
            loss_window=_LOSS[self._durability],
            search=True,
            read_only=self._refusal is not None,
            notes=notes,
        )

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
        """Append `records` as one batch; durable on return at the store's level."""
        request = AppendRequest(session_id, records, head, bind, token, expected_seq, idempotency_key)

        def run(heads: Heads) -> Appended:
            return append_records(heads, request, now_us=self._clock.now_us(), liveness=self._liveness)

        urgent, heavy = True in [record.urgent for record in records], _is_heavy(records)
        types = {record.event_type for record in records}
        job = Job(run, synced=True, urgent=urgent, heavy=heavy, events=len(records), types=types, change="content")
        return await self._submit(job)

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
        self._check_open()
        page_size(limit)
        end = event_table.END if until is None else until

        def question(connection: apsw.Connection) -> list[StoredEvent]:
            number = _number(connection, session_id)

            def check() -> int | None:
                row = head_table.load(connection, session_id, store=self._url)
                if row is None or after >= row.data.get("last_seq", 0):
                    return None  # there is nothing behind that place, archived or not
                refuse_archived(row.data, after=after, until=until, limit=limit, backwards=backwards)
                return int(row.data.get("offloaded_seq", 0))

            def page() -> list[StoredEvent]:
                return event_table.read(
                    connection, number, session_id=session_id, after=after, until=end, limit=limit, backwards=backwards
                )

            found = page()
            if not is_whole(found, after=after, limit=limit, backwards=backwards):
                # Until head and events are of one moment: an archive may take or give them meanwhile.
                gone, looks = check(), 0
                while gone is not None and looks < _LOOKS:
                    found, before, looks = page(), gone, looks + 1
                    gone = check()
                    if gone == before:
                        break
            return found

        if limit <= _QUICK_EVENTS or end - after <= _QUICK_EVENTS:
            return self._readers.here(question)
        return await self._readers.aside(question)

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return the session's batches that have a key within its retention, in order."""
        self._check_open()

        def question(connection: apsw.Connection) -> list[Outcome]:
            return key_tables.outcomes(connection, _number(connection, session_id), now_us=self._clock.now_us())

        return await self._readers.soon(question)

    async def head(self, session_id: str) -> Head | None:
        """Return the head, or None where there is no such session."""
        self._check_open()
        row = self._readers.here(partial(head_table.load, session_id=session_id, store=self._url))
        return None if row is None else head_from_json(row.data)

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads; a page costs the same however deep it is."""
        self._check_open()
        return await self._readers.soon(partial(head_table.page, query=query))

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Take in terms and, with the last of them, move `indexed_seq` of the named sessions."""
        starts = range(0, len(entries), _INDEX_AT_ONCE) or range(1)
        for start in starts:
            some = entries[start : start + _INDEX_AT_ONCE]
            moved = indexed if start == starts[-1] else {}
            run = partial(changes.index, entries=some, indexed=moved)
            await self._submit(Job(run, heavy=True, types=_NO_NEWS))

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Return events that hold every phrase, newest first. Only what was indexed is found."""
        self._check_open()
        return await self._readers.search(partial(search_table.find, query=query))

    async def drop_index(self) -> None:
        """Forget every term and set every `indexed_seq` to 0."""
        await self._submit(Job(changes.drop_index, heavy=True))

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id` if it now leads to `expected`."""
        run = partial(changes.bind, key=key, session_id=session_id, expected=expected)
        await self._submit(Job(run, synced=True, urgent=True, change="content"))

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        self._check_open()
        return self._readers.here(partial(key_tables.resolve, key=key))

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session."""
        self._check_open()
        return self._readers.here(lambda connection: key_tables.keys(connection, _number(connection, session_id)))

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live."""

        def run(heads: Heads) -> Lease | None:
            now_us, liveness = self._clock.now_us(), self._liveness
            return changes.claim(heads, session_id, owner=owner, ttl_s=ttl_s, now_us=now_us, liveness=liveness)

        return await self._submit(Job(run, types=_NO_NEWS, change="claim"))

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""

        def run(heads: Heads) -> Lease:
            return changes.renew(heads, lease, now_us=self._clock.now_us())

        return await self._submit(Job(run, types=_NO_NEWS, change="content"))

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""
        run = partial(changes.release, lease=lease, expected_seq=expected_seq)
        return await self._submit(Job(run, types=_NO_NEWS))

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work that is due and without a live lease, those due longest first."""
        self._check_open()
        return await self._readers.soon(partial(head_table.runnable, liveness=self._liveness, now=now, limit=limit))

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one, from any process; without a session, all from now on."""
        self._check_open()
        if session_id is None:
            place = self._readers.here(event_table.last_place)
            return follow_pages(self._commits_after, self._announcer, after=place, types=types)

        async def read_page(place: int) -> FollowPage[int]:
            events = await self.read(session_id, after=place, limit=_QUICK_EVENTS)
            return session_page(events, after=place, limit=_QUICK_EVENTS)

        return follow_pages(read_page, self._announcer, after=after, types=types)

    async def _commits_after(self, place: int) -> FollowPage[int]:
        self._check_open()
        return self._readers.here(partial(event_table.committed_after, place=place, limit=_QUICK_EVENTS))

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` durably and return its digest."""
        run = partial(changes.put_blob, session_id=session_id, data=bytes(data))
        return await self._submit(Job(run, synced=True, urgent=True, heavy=len(data) > _QUICK_BYTES, change="content"))

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes."""
        self._check_open()
        sql = "SELECT blobs.data FROM blobs JOIN heads ON heads.id = session WHERE session_id = ? AND digest = ?"
        row = await self._readers.aside(lambda connection: connection.execute(sql, (session_id, digest)).fetchone())
        if row is None or not isinstance(row[0], bytes):
            raise BlobNotFoundError(session_id=session_id, digest=digest)
        return row[0]

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the session's own blobs."""
        self._check_open()

        def question(connection: apsw.Connection) -> list[str]:
            number = _number(connection, session_id)
            rows = connection.execute("SELECT digest FROM blobs WHERE session = ? ORDER BY digest", (number,))
            return [str(row[0]) for row in rows]

        return self._readers.here(question)

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Take in shared events, out of sight until the session stands alone."""
        run = partial(changes.adopt, session_id=session_id, records=records, after=after, lease=lease)
        heavy = _is_heavy(records)
        return await self._submit(
            Job(run, synced=True, urgent=True, heavy=heavy, events=len(records), change="content")
        )

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of the session's events and of these blobs; its head stays, and what is searched for."""
        run = partial(letting_go.offload, session_id=session_id, until=until, blobs=blobs, archive=archive, lease=lease)
        await self._submit(Job(run, synced=True, urgent=True, heavy=True, change="content"))

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
        run = partial(
            letting_go.reload, session_id=session_id, events=events, lease=lease, complete=complete, archive=archive
        )
        await self._submit(Job(run, synced=complete, urgent=complete, heavy=True, change="content"))

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove every byte of the session, leave a tombstone, and go on where a killed erasure was."""
        erased_at = iso_from_us(self._clock.now_us())
        run = partial(erasure.erase_rows, session_id=session_id, lease=lease, erased_at=erased_at)
        receipt = await self._submit(Job(run, synced=True, urgent=True, heavy=True, change="content"))
        await self._submit(Job(partial(erasure.purge, file=self._file), outside=True))
        return receipt

    async def _finish_erasures(self) -> None:
        if self._readers.here(key_tables.unfinished):
            # Readers of other processes are no reason not to open: it stays unfinished, for the next one.
            with suppress(StoreUnavailableError):
                await self._submit(Job(partial(erasure.purge, file=self._file), outside=True))

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return what is damaged in one session, or in the whole file."""
        self._check_open()
        return await self._readers.aside(partial(verify, session_id=session_id, store=self._url))

    async def close(self) -> None:
        """Commit what was accepted, move the log into the file, and close every handle."""
        if self._closed:
            return
        self._closed = True
        self._announcer.close()
        await self._committer.close()
        self._readers.close()
        try:
            if self._refusal is None and self._file.wal:
                # The last one to close empties the log; beside others, their readers may keep it, and that is no error.
                self._writer.set_busy_timeout(0)
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except apsw.Error:
            pass
        finally:
            self._writer.close()

    async def _submit(self, job: Job[T]) -> T:
        self._check_open()
        if self._refusal is not None:
            raise type(self._refusal)(**self._refusal.data)
        return await self._committer.submit(job)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=self._url)


def _check_settings(url: str, *, durability: str, network: str) -> None:
    if durability not in _LOSS:
        raise StoreUrlError(url=url, reason=f"durability={durability} is not one of {', '.join(_LOSS)}")
    if network not in {"refuse", "allow"}:
        raise StoreUrlError(url=url, reason=f"network={network} is not one of refuse, allow")


def _is_heavy(records: Sequence[Record]) -> bool:
    return sum([len(record.body) for record in records]) > _QUICK_BYTES


def _number(connection: apsw.Connection, session_id: str) -> int:
    number = head_table.number_of(connection, session_id)
    if number is None:
        raise SessionNotFoundError(session_id=session_id)
    return number
