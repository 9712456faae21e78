"""Read one archive: its manifest at once, its blocks as they are asked for, each checked before it is believed (AR-9 to AR-13)."""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left
from collections.abc import AsyncIterator
from typing import Any

import orjson

from kipu.archive.compression import unpack
from kipu.archive.manifest import (
    BLOB,
    EVENTS,
    MAX_MANIFEST_BYTES,
    OUTCOMES,
    TRAILER_BYTES,
    Block,
    Manifest,
    Trailer,
    check_name,
    newest_name,
)
from kipu.archive.place import ArchivePlace
from kipu.errors import ArchiveDamagedError, BlobNotFoundError
from kipu.ports.store import Outcome, Record, StoredEvent

_CHUNK_BYTES = 1 << 20


class ArchiveReader:
    """Answer from one file. What it holds is the session's raw bytes: under seal where the store is."""

    def __init__(self, place: ArchivePlace, name: str, *, manifest: Manifest, trailer: Trailer, size: int) -> None:
        self.place = place
        self.name = name
        self.manifest = manifest
        self.checksum = trailer.whole_sha256.hex()
        self.size = size
        self._events = [block for block in manifest.blocks if block.kind == EVENTS]
        self._ends = [block.last for block in self._events]
        self._kept: tuple[Block, list[StoredEvent]] | None = None

    @classmethod
    async def open(cls, place: ArchivePlace, name: str, *, session_id: str) -> ArchiveReader:
        """Open the archive of this session. Raises: ArchiveMissingError, ArchiveDamagedError, ArchiveError."""
        try:
            name = check_name(name, session_id=session_id)
            size = await place.size(name)
            if size < TRAILER_BYTES:
                raise ValueError("it is too short")
            trailer = Trailer.from_bytes(await place.read(name, start=size - TRAILER_BYTES, length=TRAILER_BYTES))
            end = trailer.manifest_offset + trailer.manifest_stored
            if end != size - TRAILER_BYTES or trailer.manifest_raw > MAX_MANIFEST_BYTES:
                raise ValueError("its manifest is not where it says, or is too big")
            stored = await place.read(name, start=trailer.manifest_offset, length=trailer.manifest_stored)
            manifest = Manifest.from_bytes(stored, trailer)
            if manifest.session_id != session_id:
                raise ValueError(f"it is of the session {manifest.session_id!r:.80}")
        except ValueError as error:
            raise ArchiveDamagedError(name=name, place=place.url, reason=str(error)) from error
        return cls(place, name, manifest=manifest, trailer=trailer, size=size)

    @classmethod
    async def newest(cls, place: ArchivePlace, *, session_id: str) -> ArchiveReader | None:
        """Open the archive of this session that goes furthest, None where the place has none. Raises: ArchiveDamagedError, ArchiveError."""
        name = newest_name(await place.names(session_id), session_id=session_id)
        return None if name is None else await cls.open(place, name, session_id=session_id)

    # -- events ----------------------------------------------------------------------------------------------------------

    async def page(self, *, after: int, until: int, limit: int, backwards: bool) -> list[StoredEvent]:
        """Return at most `limit` events with after < seq <= until, the first ones or, newest first, the last ones."""
        found: list[StoredEvent] = []
        low = bisect_left(self._ends, after + 1)
        blocks = [block for block in self._events[low:] if block.first <= until]
        for block in reversed(blocks) if backwards else blocks:
            events = [event for event in await self._block_events(block) if after < event.seq <= until]
            found += (events[::-1] if backwards else events)[: limit - len(found)]
            if len(found) == limit:
                break
        return found

    async def all_events(self) -> AsyncIterator[list[StoredEvent]]:
        """Yield every event in order, block by block."""
        for block in self._events:
            yield self._parsed(block, await self._raw(block))

    async def _block_events(self, block: Block) -> list[StoredEvent]:
        if self._kept is None or self._kept[0] != block:  # pages are asked for one behind the other
            self._kept = (block, self._parsed(block, await self._raw(block)))
        return self._kept[1]

    def _parsed(self, block: Block, raw: bytes) -> list[StoredEvent]:
        events, at = [], 0
        try:
            while at < len(raw):
                end = raw.index(b"\n", at)
                seq, event_id, event_type, timestamp, tokens, turn_id, trace_id, principal, v, length = orjson.loads(
                    raw[at:end]
                )
                body = raw[end + 1 : end + 1 + length]
                at = end + 1 + length + 1
                record = Record(event_id, event_type, timestamp, body, tokens, turn_id, trace_id, principal, v)
                events.append(StoredEvent(seq, self.manifest.session_id, record))
        except (ValueError, TypeError) as error:
            raise self.damaged(f"its events from {block.first} on cannot be taken apart: {error}") from error
        if [event.seq for event in events] != list(range(block.first, block.last + 1)):
            raise self.damaged(f"it lacks events between {block.first} and {block.last}")
        return events

    # -- the rest --------------------------------------------------------------------------------------------------------

    async def blob(self, digest: str) -> bytes:
        """Return a blob. Raises: BlobNotFoundError."""
        size = dict(self.manifest.blobs).get(digest)
        if size is None:
            raise BlobNotFoundError(session_id=self.manifest.session_id, digest=digest)
        parts = [b for b in self.manifest.blocks if b.kind == BLOB and b.digest == digest]
        data = b"".join([await self._raw(part) for part in parts])
        if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
            raise self.damaged(f"its blob {digest} is not what its name says")
        return data

    async def outcomes(self) -> list[Outcome]:
        """Return what stands under which idempotency key."""
        blocks = [block for block in self.manifest.blocks if block.kind == OUTCOMES]
        lines = b"".join([await self._raw(block) for block in blocks]).splitlines()
        return [Outcome(*orjson.loads(line)) for line in lines]

    async def verify(self, *, checksum: str | None = None) -> int:
        """Read every byte and every block; return how many events there are. Raises: ArchiveDamagedError, ArchiveError."""
        end = self.size - TRAILER_BYTES
        whole = hashlib.sha256()
        for start in range(0, end, _CHUNK_BYTES):
            whole.update(await self.place.read(self.name, start=start, length=min(_CHUNK_BYTES, end - start)))
        if whole.hexdigest() != self.checksum or checksum not in {None, self.checksum}:
            raise self.damaged("the checksum of the whole file is wrong")
        count = 0
        async for events in self.all_events():
            count += len(events)
        if count != self.manifest.events:
            raise self.damaged(f"it has {count} events, and says {self.manifest.events}")
        for digest, _ in self.manifest.blobs:
            await self.blob(digest)
        await self.outcomes()
        return count

    async def _raw(self, block: Block) -> bytes:
        stored = await self.place.read(self.name, start=block.offset, length=block.stored)
        try:
            raw = await asyncio.to_thread(unpack, stored, size=block.raw)
        except ValueError as error:
            raise self.damaged(f"the block at {block.offset} cannot be unpacked: {error}") from error
        if hashlib.sha256(raw).hexdigest() != block.sha256:
            raise self.damaged(f"the checksum of the block at {block.offset} is wrong")
        return raw

    def damaged(self, reason: str) -> ArchiveDamagedError:
        """Return the error that says what is wrong with this file."""
        return ArchiveDamagedError(name=self.name, place=self.place.url, reason=reason)


def note_of(head_archive: dict[str, Any] | None) -> tuple[str, str, str | None] | None:
    """Return place, file name and checksum that a head's note says; None where it names no file."""
    if not head_archive or not isinstance(head_archive.get("name"), str):
        return None
    return str(head_archive.get("place") or ""), head_archive["name"], head_archive.get("sha256")
