"""An archive whose session its store does not know any more, taken in again: the store was lost, or is another one."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from kipu.archive.archive_reader import ArchiveReader
from kipu.errors import (
    ConflictError,
    DataKeyDestroyedError,
    DataKeyMissingError,
    EncryptionError,
    SessionErasedError,
    SessionNotFoundError,
)
from kipu.manager.begun import begun
from kipu.manager.lifecycle.archive_backed import archive_backed
from kipu.manager.lifecycle.archived_session import ArchivedSession
from kipu.manager.lifecycle.archiver import Archived
from kipu.manager.session_copy import SessionCopy
from kipu.ports.head import Head
from kipu.ports.store import EventStore
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.host import SystemClock, SystemLiveness
from kipu.stores.memory import MemoryStore
from kipu.stores.sealed_mark import is_sealed
from kipu.stores.wrapper import WrappedStore


class LoneArchive:
    """Hold the newest archive of a session, read through the keys of the store that is to have it again."""

    def __init__(self, reader: ArchiveReader, *, source: EventStore, store: EventStore, head: Head) -> None:
        self._reader = reader
        self._source = source
        self._store = store
        self.head = head

    @classmethod
    async def find(cls, store: EventStore, session_id: str, *, place: str | None) -> Self | None:
        """Find the archive in a place, the store's own where none is named; None where there is none.

        Raises: ArchiveError, ArchivePlaceError, EncryptionError (it is sealed, and not with the keys of this store),
        SealBrokenError, SessionErasedError.
        """
        backed = archive_backed(store)
        if not place and backed.default_url is None:
            return None
        reader = await ArchiveReader.newest(backed.place(place or ""), session_id=session_id)
        if reader is None:
            return None
        raw = ArchivedSession(reader, nothing=MemoryStore(clock=SystemClock(), liveness=SystemLiveness()))
        source = await _readable(store, raw, name=reader.name)
        try:
            head = await source.head(session_id)
        except DataKeyDestroyedError as error:
            if await store.head(session_id) is not None:  # else nothing is left that an erasure could still take
                raise
            raise SessionErasedError(session_id=session_id) from error
        return None if head is None else cls(reader, source=source, store=store, head=head)

    @property
    def archived(self) -> Archived:
        """Return what the file holds."""
        reader, manifest = self._reader, self._reader.manifest
        return Archived(
            manifest.session_id,
            reader.name,
            reader.place.url,
            bytes=reader.size,
            events=manifest.events,
            blobs=len(manifest.blobs),
        )

    @property
    def parent_id(self) -> str | None:
        """Return whose events the session shares, None where it shares none."""
        return self.head.forked_from if self.head.base_seq else None

    async def parent(self) -> Head | None:
        """Return the head of the session whose events this one shares, as the store has it."""
        return None if self.parent_id is None else await self._store.head(self.parent_id)

    async def remove(self) -> None:
        """Remove the file."""
        await self._reader.place.remove(self._reader.name)

    async def take_in(self, *, owner: str) -> None:
        """Put the session into the store, archived as it was; what was broken off goes on.

        Every byte is checked before anything is written, and what was written is read back.

        Raises: ArchiveDamagedError, SessionNotFoundError (it is a fork, and its parent is not there), SessionErasedError,
        CopyMismatchError, ConflictError (the parent that is there ends before the fork begins), StoreError.
        """
        await self._reader.verify()
        damage = await self._source.verify(self.head.session_id)
        if damage:
            raise self._reader.damaged(damage[0].detail or damage[0].reason)
        parent = await self.parent()
        if self.parent_id is not None and parent is None:
            raise SessionNotFoundError(session_id=self.parent_id)
        if parent is not None and parent.last_seq < self.head.base_seq:
            # What the parent says next would stand in the fork's history, as if it had been there before the fork.
            raise ConflictError(session_id=parent.session_id, expected=self.head.base_seq, actual=parent.last_seq)
        await SessionCopy(
            self._source, self._store, head=self.head, owner=owner, verify=True, moved=lambda _: None
        ).run()


async def _readable(store: EventStore, raw: ArchivedSession, *, name: str) -> EventStore:
    """Return the archive under the keys of the store where it is sealed, else as it stands: it is sealed from now on.

    Raises: EncryptionError (it is sealed, and the store has no keys; or it is not, and the store's keys have sealed this session).
    """
    source = _seen_through(store, raw)
    if await is_sealed(raw):
        if source is raw:
            raise EncryptionError(store=name, reason="it is sealed, and the store that is to have it has no keys")
        return source
    if isinstance(source, EncryptedStore) and await begun(store, raw.session_id) is None:
        with suppress(DataKeyMissingError):
            await source.store_keys.cipher(raw.session_id, fresh=True)
            raise EncryptionError(
                store=name, reason="it is not sealed, as the file of this session was: it is another one"
            )
    return raw


def _seen_through(store: EventStore, source: EventStore) -> EventStore:
    """Return the source as the wrappers around a store would show it."""
    if not isinstance(store, WrappedStore):
        return source
    return store.around(_seen_through(store.inner, source))
