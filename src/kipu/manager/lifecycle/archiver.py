"""Moving a session's events into an archive and back, each step durable before the next (B48, C16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kipu.errors import (
    ArchiveDamagedError,
    ConflictError,
    SessionArchivedError,
    SessionBusyError,
    SessionNotFoundError,
    StoreCorruptError,
)
from kipu.events.boundary import StatusChangedEvent
from kipu.manager.lifecycle.archive_backed import ArchiveBackedStore, archive_backed
from kipu.manager.lock import SessionLock
from kipu.manager.writer import EventWriter
from kipu.ports.head import Head, head_to_json
from kipu.ports.store import EventStore, Lease, StoredEvent
from kipu.session.lifecycle import ACTIVE, ARCHIVED, check_transition
from kipu.session.patch import patch_for

_FIRST_PAGE, _MAX_PAGE = 64, 1000
_PAGE_BYTES = 1 << 20
Progress = Callable[[int, int], None]  # events done, of how many


@dataclass(frozen=True, slots=True)
class Archived:
    """What became of one session: its file, what the file holds, and whether anything had to be done."""

    session_id: str
    name: str
    place: str
    bytes: int
    events: int
    blobs: int
    changed: bool = True


class Archiver:
    """Archive and bring back sessions of one store.

    A session's status, its file and its events move in this order: `archived` on record; the file written, and read back whole;
    the events let go of. Killed anywhere, the next call goes on; nothing is in neither place at any moment.
    """

    def __init__(self, store: EventStore, *, writer: EventWriter, owner: str, now: Callable[[], str]) -> None:
        self._store = store
        self._writer = writer
        self._owner = f"{owner}.archive"
        self._now = now

    @property
    def backed(self) -> ArchiveBackedStore:
        """Return the store that knows the archives. Raises: ArchivePlaceError."""
        return archive_backed(self._store)

    def lock(self, session_id: str) -> SessionLock:
        """Return a lock of this archiver's own."""
        return SessionLock(self._store, session_id, owner=self._owner)

    async def archive(
        self, session_id: str, *, to: str | None = None, wait_s: float = 5.0, progress: Progress | None = None
    ) -> Archived:
        """Move a session's events into one file at `to`, the store's own archive folder where nothing is said.

        Raises: SessionNotFoundError, SessionBusyError (somebody has it, or it has work), TransitionError, ArchiveError,
        ArchivePlaceError, StoreCorruptError (it cannot be read whole, and stays where it is).
        """
        self.backed.place_to_write(to or "")  # a place that is none is told before anything is done
        lock = self.lock(session_id)
        await lock.acquire(wait_s=wait_s)
        try:
            lease = _lease(lock)
            return await self.archive_held(session_id, lease=lease, to=to, reason="archive", progress=progress)
        finally:
            await lock.release()

    async def archive_held(
        self, session_id: str, *, lease: Lease, to: str | None, reason: str, progress: Progress | None = None
    ) -> Archived:
        """Do what `archive` does for whoever holds the session."""
        head = await self._require(session_id)
        if is_at_work(head):
            raise SessionBusyError(session_id=session_id, owner="work that waits in it")
        if head.offloaded_seq == head.last_seq and head.status == ARCHIVED:
            return await self._finish(head, lease)
        if head.offloaded_seq:  # it was used since, while its older events were away
            await self.backed.bring_back(head, lease=lease)
        await self._set_status(head, ARCHIVED, lease=lease, reason=reason)
        head = await self._require(session_id)
        archive = await self._write_file(head, to=to, progress=progress)
        return await self._let_go(head, archive, lease=lease)

    async def _write_file(self, head: Head, *, to: str | None, progress: Progress | None) -> dict[str, Any]:
        """Write the file, read it back, and return what the head is to say of it. What wrappers seal is sealed in it."""
        from kipu.archive.archive_reader import ArchiveReader
        from kipu.archive.archive_writer import ArchiveWriter
        from kipu.archive.manifest import archive_name

        kept, session_id = self.backed.inner, head.session_id
        place = self.backed.place_to_write(to or "")
        newest = await kept.read(session_id, limit=1, backwards=True)
        last_id = newest[0].record.event_id if newest else ""
        name = archive_name(session_id, last_seq=head.last_seq, last_event_id=last_id)
        raw_head = await kept.head(session_id)
        if raw_head is None:
            raise SessionNotFoundError(session_id=session_id)
        async with place.writing(name) as sink:
            writer = ArchiveWriter(sink, session_id=session_id)
            await self._write_events(writer.add_events, head, progress)
            blobs = await kept.blobs(session_id)
            for digest in blobs:
                await writer.add_blob(digest, await kept.get_blob(session_id, digest))
            await writer.add_outcomes(await kept.outcomes(session_id))
            keys, now = await kept.keys(session_id), self._now()
            checksum, size = await writer.finish(head=head_to_json(raw_head), keys=keys, archived_at=now)
        self.backed.forget(name)
        reader = await ArchiveReader.open(place, name, session_id=session_id)
        await reader.verify(checksum=checksum)
        if (reader.manifest.events, reader.manifest.last_seq) != (writer.events, head.last_seq):
            raise ArchiveDamagedError(name=name, place=place.url, reason="it reads back otherwise than it was written")
        return {
            "place": place.url if to else "",
            "name": name,
            "sha256": checksum,
            "bytes": size,
            "events": writer.events,
            "blobs": blobs,
            "archived_at": now,
        }

    async def _write_events(self, add: Callable[[Sequence[StoredEvent]], Any], head: Head, progress: Any) -> None:
        kept, after, limit = self.backed.inner, head.base_seq, _FIRST_PAGE
        while after < head.last_seq:
            page = await kept.read(head.session_id, after=after, until=head.last_seq, limit=limit)
            if not page or page[0].seq != after + 1 or page[-1].seq != after + len(page):
                reason = f"session {head.session_id} cannot be read whole, and stays in the store"
                raise StoreCorruptError(store=kept.describe().url, reason=reason)
            await add(page)
            after = page[-1].seq
            size = sum(len(event.record.body) for event in page)
            limit = max(1, limit // 2) if size > _PAGE_BYTES else min(_MAX_PAGE, limit * 2)
            if progress is not None:
                progress(after - head.base_seq, head.last_seq - head.base_seq)

    async def _let_go(self, head: Head, archive: dict[str, Any], *, lease: Lease) -> Archived:
        blobs: list[str] = archive["blobs"]
        note = {**archive, "blobs": len(blobs)}
        await self._store.offload(head.session_id, until=head.last_seq, blobs=blobs, archive=note, lease=lease)
        before = head.archive
        if before is not None and before.get("name") != archive["name"]:
            await self.backed.remove_file(head)  # of a time before: this one has all that it had
        return self._archived(head.session_id, note, changed=True)

    async def _finish(self, head: Head, lease: Lease) -> Archived:
        """Let go once more of what a kill may have left behind; a file that cannot be read leaves all as it is."""
        reader = await self.backed.reader(head)
        blobs = [digest for digest, _ in reader.manifest.blobs]
        note = head.archive or {}
        await self.backed.inner.offload(head.session_id, until=head.last_seq, blobs=blobs, archive=note, lease=lease)
        return self._archived(head.session_id, note, changed=False)

    def _archived(self, session_id: str, note: dict[str, Any], *, changed: bool) -> Archived:
        place = self.backed.place(note.get("place") or "").url
        counts = {name: int(note.get(name) or 0) for name in ("bytes", "events", "blobs")}
        return Archived(session_id, str(note.get("name")), place, changed=changed, **counts)

    async def unarchive(
        self, session_id: str, *, source: str | None = None, keep_file: bool = False, wait_s: float = 5.0
    ) -> Archived:
        """Bring a session back whole, as active, under its own id; what arrived meanwhile stays. Then its file is removed.

        `source` is where the file is now, if it was moved. Raises: SessionNotFoundError, SessionBusyError, ArchiveError.
        """
        lock = self.lock(session_id)
        await lock.acquire(wait_s=wait_s)
        try:
            lease = _lease(lock)
            head = await self._require(session_id)
            await self._set_status(head, ACTIVE, lease=lease, reason="unarchive")
            return await self.bring_back_held(session_id, lease=lease, source=source, keep_file=keep_file)
        finally:
            await lock.release()

    async def bring_back_held(
        self, session_id: str, *, lease: Lease, source: str | None = None, keep_file: bool = False
    ) -> Archived:
        """Put the events of a session that the caller holds into the store again, then remove the file."""
        head = await self._require(session_id)
        if head.archive is None:
            return Archived(session_id, "", "", 0, 0, 0, changed=False)
        if head.offloaded_seq and head.archive.get("name") is None:
            raise SessionArchivedError(session_id=session_id, until=head.offloaded_seq)
        if source is not None:
            head.__dict__["archive"] = {**head.archive, "place": self.backed.place(source).url}
        done = self._archived(session_id, head.archive or {}, changed=bool(head.offloaded_seq))
        if head.offloaded_seq:
            await self.backed.bring_back(head, lease=lease)
        if not keep_file:
            await self.backed.remove_file(head)
            await self.backed.inner.reload(session_id, lease=lease, complete=True, archive=None)
        return done

    async def _require(self, session_id: str) -> Head:
        head = await self._store.head(session_id)
        if head is None:
            raise SessionNotFoundError(session_id=session_id)
        return head

    async def _set_status(self, head: Head, status: str, *, lease: Lease, reason: str) -> None:
        if check_transition(head.session_id, head.status, after=status):
            await set_status(self._store, head, writer=self._writer, status=status, reason=reason, lease=lease)


async def set_status(
    store: EventStore, head: Head, *, writer: EventWriter, status: str, reason: str, lease: Lease
) -> None:
    """Put a session's new status on record, if nothing came in since its head was read. Raises: ConflictError, LeaseLostError."""
    event = StatusChangedEvent.model_validate({"status": status, "reason": reason})
    prepared = await writer.prepare(head.session_id, event)
    await store.append(
        head.session_id,
        [prepared.record],
        head=patch_for([prepared.event]),
        token=lease.token,
        expected_seq=head.last_seq,
    )


def is_at_work(head: Head) -> bool:
    """Return True while a turn is open, a message waits for one, or an answer still has to go out."""
    return bool(head.open_turn or head.waiting or head.undelivered)


def _lease(lock: SessionLock) -> Lease:
    lease = lock.lease
    if lease is None:
        raise ConflictError(session_id=lock.session_id, expected="a lease", actual=None)
    return lease
