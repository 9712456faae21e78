"""One archive as a store that holds its session and nothing else, only to be read."""

from __future__ import annotations

import builtins
from dataclasses import replace

from kipu.archive.archive_reader import ArchiveReader
from kipu.errors import InvalidSessionKeyError
from kipu.manager.access import owner_of
from kipu.manager.key_text import free_key
from kipu.ports.head import Head, head_from_json
from kipu.ports.principal import Principal
from kipu.ports.store import MAX_PAGE, Damage, EventStore, Outcome, Page, SessionQuery, StoredEvent
from kipu.stores.wrapper import WrappedStore


class ArchivedSession(WrappedStore):
    """Show what an archive holds, byte for byte: under seal where its store was. `nothing` is an empty store."""

    def __init__(self, reader: ArchiveReader, *, nothing: EventStore) -> None:
        super().__init__(nothing)
        self._reader = reader
        self.session_id = reader.manifest.session_id

    async def head(self, session_id: str) -> Head | None:
        """Return the head as it was when the file was written."""
        return self._own_head() if session_id == self.session_id else None

    def _own_head(self) -> Head:
        return replace(head_from_json(self._reader.manifest.head), offloaded_seq=0, archive=None)

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return the one head there is, whatever is asked for."""
        return Page((self._own_head(),), None)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> builtins.list[StoredEvent]:
        """Return events of the file."""
        last = self._reader.manifest.last_seq
        until = last if until is None else min(until, last)
        return await self._reader.page(after=after, until=until, limit=min(limit, MAX_PAGE), backwards=backwards)

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return what stands under which key."""
        return await self._reader.outcomes()

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that led to the session, but for those that its owner could not have given to it."""
        owner = owner_of(self._own_head())
        return [key for key in self._reader.manifest.keys if _may_give(owner, key)]

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the blobs in the file."""
        return [digest for digest, _ in self._reader.manifest.blobs]

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return a blob of the file. Raises: BlobNotFoundError."""
        return await self._reader.blob(digest)

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return nothing: a file that is not whole is an error wherever it is read."""
        return []


def _may_give(owner: Principal, key: str) -> bool:
    """Return True where the key is of the owner's tenant, and nobody else's: a file can be written to say any."""
    try:
        return free_key(key, owner) == key
    except (InvalidSessionKeyError, UnicodeDecodeError):
        return False
