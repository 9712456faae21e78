"""The store contract over one schema of a PostgreSQL database, for any number of processes on any machines."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from psycopg.errors import DuplicateObject, UniqueViolation

from kipu.errors import NewerFormatError, StoreClosedError, StoreUnavailableError
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
from kipu.stores.follow import Announcer, FollowPage, follow_pages, session_page
from kipu.stores.paging import page_size
from kipu.stores.postgres import listing, schema, searching
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.appending import Appender
from kipu.stores.postgres.changes import Changes
from kipu.stores.postgres.database import Connection, Database, pause, run
from kipu.stores.postgres.durability import ServerDurability, require, server_durability
from kipu.stores.postgres.following import Everything
from kipu.stores.postgres.heads import Heads, sql
from kipu.stores.postgres.marking import MarkOnServer
from kipu.stores.postgres.news import News
from kipu.stores.postgres.presence import Presence
from kipu.stores.postgres.reading import Reader
from kipu.stores.postgres.server_clock import ServerClock

_FOLLOWED_EVENTS = 256
_MAKING_TRIES = 6
_NOW_US = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_PUT_BLOB = "INSERT INTO {schema}.blobs(session_id, digest, data) SELECT h.session_id, %s, %b FROM {schema}.heads AS h"


class PostgresStore(MarkOnServer):
    """Keep sessions in PostgreSQL. See docs/formats/postgresql.md; requirements PG-1 and on."""

    def __init__(
        self, database: Database, *, clock: Clock, liveness: Liveness, presence: Presence, durability: ServerDurability
    ) -> None:
        self._database = database
        self._clock = clock
        self._presence = presence
        self._durability = durability
        self._closed = False
        self._beginning: set[asyncio.Future[None]] = set()
        heads = Heads(database)
        self._heads = heads
        self._liveness = liveness
        self._announcer = Announcer(database.url)
        self._news = News(database, self._announcer)
        self._appender = Appender(database, heads, clock=clock, liveness=liveness)
        self._changes = Changes(database, heads, clock=clock, liveness=liveness)
        self._reader = Reader(database, heads)

    @classmethod
    async def open(cls, url: str, *, liveness: Liveness, clock: Clock | None = None) -> PostgresStore:
        """Connect, making the tables where there are none. Without a clock the server's counts, for all machines.

        Raises: StoreUrlError, StoreUnavailableError, StoreReadOnlyError, StoreCorruptError.
        """
        database = Database(Address.parse(url))
        presence = Presence(database)
        try:
            await database.open()
            durability = await server_durability(database)
            require(database.address.durability, durability, url=database.url)
            await _prepare(database)
            await presence.begin()
            if clock is None:
                clock = ServerClock(lambda: _server_now_us(database))
                await clock.look()
            store = cls(database, clock=clock, liveness=liveness, presence=presence, durability=durability)
            await store._news.open()
        except BaseException:
            await presence.close()
            await database.close()
            raise
        return store

    @property
    def clock(self) -> Clock:
        """Return the clock by which everything here goes: the server's, unless another was given."""
        return self._clock

    def describe(self) -> StoreDescription:
        """Return what this store is."""
        refusal = self._presence.refusal
        notes = self._durability.notes if refusal is None else (str(refusal), *self._durability.notes)
        if not self._news.is_heard:
            notes += ("notices of other machines do not get through here: they are looked for 25 times a second",)
        return StoreDescription(
            url=self._database.url,
            kind="postgresql",
            durability=self._durability.level,
            loss_window=self._durability.loss_window,
            search=True,
            read_only=refusal is not None,
            notes=notes,
        )

    @property
    def database(self) -> Database:
        """Return what the sessions are kept in, for what belongs to the store and is no session: its vault, its memory."""
        return self._database

    @property
    def address(self) -> Address:
        """Return where its database is, for what goes over lines of its own."""
        return self._database.address

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
        appended = await self._appender.append(request)
        self._news.committed({record.event_type for record in records})
        return appended

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
        return await listing.page(self._database, query)

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work that is due and without a live lease, those due longest first."""
        self._check_open()
        return await listing.runnable(self._database, self._liveness, now=now, limit=limit)

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one, from any machine; without a session, all from now on."""
        self._check_open()
        if session_id is None:
            everything = Everything(self._database, types=types)
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
        """Take in terms, then move `indexed_seq` of the named sessions: killed between the two, they are taken in again."""
        await self._may_write()

        async def put(connection: Connection) -> None:
            await searching.put_terms(connection, self._database, entries=entries)

        if entries:
            await self._database.together(put)
        for session_id, seq in indexed.items():
            await self._changes.set_indexed(session_id, seq)

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Return events that hold every phrase, newest first. Only what was indexed is found."""
        self._check_open()
        return await searching.find(self._database, query)

    async def drop_index(self) -> None:
        """Forget every term and set every `indexed_seq` to 0."""
        await self._may_write()
        await self._changes.drop_index()

    # ---- keys and leases -------------------------------------------------------------------------------------------

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id` if it now leads to `expected`."""
        await self._may_write()
        await self._appender.bind(key, session_id, expected=expected)

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        self._check_open()
        return await self._reader.resolve(key)

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session."""
        self._check_open()
        return await self._reader.keys(session_id)

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live."""
        await self._may_write()
        return await self._changes.claim(session_id, owner=owner, ttl_s=ttl_s)

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        await self._may_write()
        return await self._changes.renew(lease)

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""
        await self._may_write()
        return await self._changes.release(lease, expected_seq=expected_seq)

    # ---- blobs -----------------------------------------------------------------------------------------------------

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` durably and return its digest."""
        await self._may_write()
        self._heads.check(await self._heads.mark())
        digest = hashlib.sha256(data).hexdigest()
        text = sql(f"{_PUT_BLOB} WHERE h.session_id = %s AND h.data IS NOT NULL ON CONFLICT DO NOTHING", self._database)
        values = (digest, bytes(data), session_id)
        if not await self._changing(lambda connection: run(connection, text, values=values)):
            await self._heads.found(session_id)  # it was kept before, or there is no such session
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
        return await self._changes.adopt(session_id, records, after=after, lease=lease)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of the session's events and of these blobs, in one transaction."""
        await self._may_write()
        await self._changes.offload(session_id, until=until, blobs=blobs, archive=archive, lease=lease)
        self._news.committed(None)

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
        await self._changes.reload(session_id, events, lease=lease, complete=complete, archive=archive)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove every row of the session. What the server keeps of removed rows is said in docs/howto/erase-and-export.md."""
        await self._may_write()
        receipt = await self._changes.erase(session_id, lease=lease)
        self._news.committed(None)
        return receipt

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
            await self._presence.close()
            await self._database.close()

    async def _changing(self, work: Callable[[Connection], Awaitable[int]]) -> int:
        return await self._database.changing(work)

    async def _may_write(self) -> None:
        self._check_open()
        if self._presence.refusal is not None:
            raise NewerFormatError(**self._presence.refusal.data)
        if self._beginning:
            await asyncio.wait(self._beginning)
        if isinstance(self._clock, ServerClock):
            await self._clock.look()

    async def _may_read(self) -> None:
        """Let followers begin first: what is not read here yet comes to them, so that nothing falls between the two."""
        self._check_open()
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=self._database.url)


async def _server_now_us(database: Database) -> int:
    return int((await database.rows(_NOW_US))[0][0])


async def _prepare(database: Database) -> None:
    """Make the tables where there are none."""
    name = f'"{database.address.schema}".meta'
    if not (await database.rows(schema.HAS_META, (name,)))[0][0]:
        await _make_tables(database)


async def _make_tables(database: Database) -> None:
    """Make every table; where others do at the same moment, one of them succeeds."""

    async def make(connection: Connection) -> None:
        for statement in schema.TABLES:
            await run(connection, sql(statement, database))
        await run(connection, sql(schema.FILL_META, database), values=(str(schema.FORMAT), str(schema.FORMAT)))

    for number in range(_MAKING_TRIES):
        try:
            await database.together(make)
        except StoreUnavailableError as error:
            if number == _MAKING_TRIES - 1 or not isinstance(error.__cause__, (UniqueViolation, DuplicateObject)):
                raise
            await pause(number)
        else:
            return
