"""A store whose archived sessions can be read: what it let go of is read from the archive, as if it were there (B48, A56)."""

from __future__ import annotations

import builtins
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kipu.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveMissingError,
    ArchivePlaceError,
    BlobNotFoundError,
    SessionArchivedError,
    SessionNotFoundError,
)
from kipu.ports.head import Head
from kipu.ports.store import MAX_PAGE, Damage, ErasureReceipt, EventStore, Lease, Record, SessionQuery, StoredEvent
from kipu.stores.wrapper import WrappedStore

if TYPE_CHECKING:
    from kipu.archive.archive_reader import ArchiveReader
    from kipu.archive.place import ArchivePlace

_READERS_KEPT = 8


class ArchiveBackedStore(WrappedStore):
    """Read the sessions of the store inside wherever their events are; nothing comes back into the store by reading.

    It stands directly around the store that keeps the bytes, so that an archive holds what that store held: under seal where
    the store is. `default_url` is where archives are whose head names no place: it moves with the store.
    """

    def __init__(self, inner: EventStore, *, default_url: str | None, is_default_local: bool = False) -> None:
        super().__init__(inner)
        self.default_url = default_url
        self._is_default_local = is_default_local  # other machines that have the store do not have that folder
        self._readers: OrderedDict[str, ArchiveReader] = OrderedDict()

    def place(self, url: str) -> ArchivePlace:
        """Return the place of a URL, the default one for none. Raises: ArchivePlaceError, MissingExtraError."""
        from kipu.archive.place import open_place

        named = url or self.default_url
        if named is None:
            raise ArchivePlaceError(place="", reason="this store has no folder of its own, so the place must be named")
        return open_place(named)

    def place_to_write(self, url: str) -> ArchivePlace:
        """Return where a new archive goes. Raises: ArchivePlaceError, also where that would be one machine's own folder."""
        if not url and self._is_default_local:
            reason = "a folder of this machine alone is none for a store on a server: name one that every machine reaches, by archive="
            raise ArchivePlaceError(place=self.default_url or "", reason=reason)
        return self.place(url)

    async def reader(self, head: Head) -> ArchiveReader:
        """Return the reader of a session's archive. Raises: SessionArchivedError (its head names no file), ArchiveError."""
        from kipu.archive.archive_reader import ArchiveReader, note_of

        note = note_of(head.archive)
        if note is None:
            raise SessionArchivedError(session_id=head.session_id, until=head.offloaded_seq)
        place, name, checksum = note
        known = self._readers.get(name)
        if known is None:
            known = await ArchiveReader.open(self.place(place), name, session_id=head.session_id)
            if checksum not in {None, known.checksum}:
                where = self.place(place).url
                raise ArchiveDamagedError(name=name, place=where, reason="it is not the file that was written")
            self._readers[name] = known
            if len(self._readers) > _READERS_KEPT:
                self._readers.popitem(last=False)
        return known

    def forget(self, name: str) -> None:
        """Read this file anew when it is asked for next."""
        self._readers.pop(name, None)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return events of the archive, and behind them of the store. Raises: ArchiveError where the archive cannot be read."""
        how: dict[str, Any] = {"after": after, "until": until, "limit": min(limit, MAX_PAGE), "backwards": backwards}
        try:
            return await self.inner.read(session_id, **how)
        except SessionArchivedError:
            head = await self._head(session_id)
        try:
            if head.offloaded_seq:
                return await self._read_over(head, **how)
        except ArchiveMissingError:
            if (await self._head(session_id)).offloaded_seq:
                raise
        return await self.inner.read(session_id, **how)  # it came back between the two

    async def _read_over(
        self, head: Head, *, after: int, until: int | None, limit: int, backwards: bool
    ) -> builtins.list[StoredEvent]:
        """Return a page that begins in the archive, or ends there."""
        session_id, border = head.session_id, head.offloaded_seq
        reader, found = await self.reader(head), list[StoredEvent]()
        for is_archived in (False, True) if backwards else (True, False):
            room = limit - len(found)
            if room and is_archived:
                end = border if until is None else min(until, border)
                found += await reader.page(after=after, until=end, limit=room, backwards=backwards)
            elif room and (until is None or until > border):
                low = max(after, border)
                found += await self.inner.read(session_id, after=low, until=until, limit=room, backwards=backwards)
        return found

    async def _head(self, session_id: str) -> Head:
        head = await self.inner.head(session_id)
        if head is None:
            raise SessionNotFoundError(session_id=session_id)
        return head

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Follow the inner store; one session's archived events come before what it has."""
        if session_id is None:
            return self.inner.follow(after=after, types=types)
        return self._follow_session(session_id, after, types)

    async def _follow_session(
        self, session_id: str, after: int, types: AbstractSet[str] | None
    ) -> AsyncIterator[StoredEvent]:
        head = await self.inner.head(session_id)
        border = head.offloaded_seq if head is not None else 0
        while after < border:
            page = await self.read(session_id, after=after, until=border, limit=256)
            if not page:
                break
            for event in page:
                if types is None or event.record.event_type in types:
                    yield event
            after = page[-1].seq
        inner = self.inner.follow(session_id, after=max(after, border), types=types)
        try:
            async for event in inner:
                yield event
        finally:
            close = getattr(inner, "aclose", None)
            if close is not None:
                await close()

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes, from the archive where they are there."""
        try:
            return await self.inner.get_blob(session_id, digest)
        except BlobNotFoundError:
            head = await self.inner.head(session_id)
            if head is None or not head.offloaded_seq:
                raise
        return await (await self.reader(head)).blob(digest)

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of blobs in the store and in the archive."""
        there = await self.inner.blobs(session_id)
        head = await self._head(session_id)
        if not head.offloaded_seq:
            return there
        try:
            reader = await self.reader(head)
        except SessionArchivedError:
            return there
        return sorted({*there, *(digest for digest, _ in reader.manifest.blobs)})

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Bring the session's own events back, then take shared ones into the inner store."""
        head = await self._head(session_id)
        if head.offloaded_seq:
            await self.bring_back(head, lease=lease)
        return await self.inner.adopt(session_id, records, after=after, lease=lease)

    async def bring_back(self, head: Head, *, lease: Lease) -> int:
        """Put a session's archived blobs and events into the store again; killed in between, it begins anew. The file stays.

        Raises: ArchiveError, SessionArchivedError, LeaseLostError.
        """
        reader, session_id = await self.reader(head), head.session_id
        if reader.manifest.last_seq > head.offloaded_seq:
            raise reader.damaged("it is of a later time than the store")
        for digest, _ in reader.manifest.blobs:
            if await self.inner.put_blob(session_id, await reader.blob(digest)) != digest:
                raise reader.damaged(f"its blob {digest} is another one")
        count = 0
        async for events in reader.all_events():
            await self.inner.reload(session_id, events, lease=lease)
            count += len(events)
        if count != reader.manifest.events:
            raise reader.damaged(f"it has {count} of {reader.manifest.events} events")
        await self.inner.reload(session_id, lease=lease, complete=True, archive=head.archive)
        return count

    async def remove_file(self, head: Head) -> bool:
        """Remove the archive file that a head names; False where there is none."""
        from kipu.archive.archive_reader import note_of
        from kipu.archive.manifest import check_name

        note = note_of(head.archive)
        if note is None:
            return False
        place, name, _ = note
        self.forget(name)
        return await self.place(place).remove(check_name(name, session_id=head.session_id))

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove the session's archives, then every byte of it in the store (C20)."""
        head, removed = await self.inner.head(session_id), 0
        if head is not None:
            others = await self._own_files(session_id)
            if others or head.archive is not None:
                lease = await self.inner.renew(lease)  # whoever has lost it must not remove a file
            removed = int(head.archive is not None and await self.remove_file(head))
            for name in others:
                self.forget(name)
                removed += await self.place("").remove(name)
        receipt = await self.inner.erase(session_id, lease=lease)
        return replace(receipt, removed={**receipt.removed, "archives": removed}) if removed else receipt

    async def _own_files(self, session_id: str) -> builtins.list[str]:
        """Return the names of the session's files in the store's own place, those too that no head names.

        An archiving that was killed left one, whole or a part, and so did whoever kept the file that a session came back from.
        """
        from kipu.archive.manifest import names_of

        if self.default_url is None:
            return []
        place = self.place("")
        return names_of([*await place.names(session_id), *await place.parts(session_id)], session_id=session_id)

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return the inner store's damage, and every archive that is missing or is not as it was written."""
        damage = await self.inner.verify(session_id)
        if session_id is not None:
            return damage + await self._archive_damage(await self._head(session_id))
        cursor: str | None = None
        while True:
            page = await self.inner.list(SessionQuery(order="created_at", limit=MAX_PAGE, cursor=cursor))
            for head in page.items:
                damage += await self._archive_damage(head)
            cursor = page.cursor
            if cursor is None:
                return damage

    async def _archive_damage(self, head: Head) -> builtins.list[Damage]:
        if not head.offloaded_seq:
            return []
        try:
            reader = await self.reader(head)
            count = await reader.verify(checksum=(head.archive or {}).get("sha256"))
        except SessionArchivedError:
            return []  # whoever let go of it keeps it somewhere that this Kipu does not know
        except ArchiveError as error:
            reason = "checksum" if isinstance(error, ArchiveDamagedError) else "unreadable"
            return [Damage(head.session_id, reason, "archive", detail=str(error))]
        if reader.manifest.last_seq != head.offloaded_seq:
            detail = f"it ends with event {reader.manifest.last_seq} of {head.offloaded_seq}, {count} events"
            return [Damage(head.session_id, "gap", "archive", detail=detail)]
        return []


def archive_backed(store: EventStore) -> ArchiveBackedStore:
    """Return the store that knows the archives, below everything that is wrapped around it. Raises: ArchivePlaceError."""
    while isinstance(store, WrappedStore):
        if isinstance(store, ArchiveBackedStore):
            return store
        store = store.inner
    raise ArchivePlaceError(
        place="", reason="the store was opened without archives; open it with kipu.wiring.open_store"
    )
