"""Write one archive, block by block: what is in memory is one block, however long the session is (AR-1, AR-2)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kipu.archive.compression import MAX_BLOCK_BYTES, pack
from kipu.archive.manifest import BLOB, EVENTS, OUTCOMES, Block, BlockKind, Manifest, Trailer
from kipu.archive.place import Sink
from kipu.errors import InputError
from kipu.ports.store import Outcome, StoredEvent

BLOCK_BYTES = 1 << 20


class ArchiveWriter:
    """Put events, blobs and the rest of a session into a sink. Nothing is an archive before `finish` has returned."""

    def __init__(self, sink: Sink, *, session_id: str) -> None:
        self._sink = sink
        self._session_id = session_id
        self._offset = 0
        self._whole = hashlib.sha256()
        self._blocks: list[Block] = []
        self._blobs: list[tuple[str, int]] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._first = self._last = self._events = 0
        self._first_seq = 0

    @property
    def events(self) -> int:
        """Return how many events were taken in."""
        return self._events

    async def add_events(self, events: Sequence[StoredEvent]) -> None:
        """Take in events that follow those before."""
        for event in events:
            lines = _event_lines(event)
            if self._lines and (self._size + len(lines) > BLOCK_BYTES or event.seq != self._last + 1):
                await self._flush()
            if not self._lines:
                self._first = event.seq
            self._first_seq = self._first_seq or event.seq
            self._lines.append(lines)
            self._size += len(lines)
            self._last = event.seq
            self._events += 1

    async def _flush(self) -> None:
        if self._lines:
            raw = b"".join(self._lines)
            self._lines, self._size = [], 0
            await self._add_block(EVENTS, raw, first=self._first, last=self._last)

    async def add_blob(self, digest: str, data: bytes) -> None:
        """Take in a blob, in parts."""
        await self._flush()
        for start in range(0, max(len(data), 1), BLOCK_BYTES):
            part = data[start : start + BLOCK_BYTES]
            await self._add_block(BLOB, part, first=start, last=start + len(part), digest=digest)
        self._blobs.append((digest, len(data)))

    async def add_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Take in what stands under which idempotency key."""
        await self._flush()
        lines, size, first = [], 0, 0
        for number, outcome in enumerate(outcomes):
            lines.append(orjson.dumps(list(outcome)) + b"\n")
            size += len(lines[-1])
            if size > BLOCK_BYTES or number == len(outcomes) - 1:
                await self._add_block(OUTCOMES, b"".join(lines), first=first, last=number + 1)
                lines, size, first = [], 0, number + 1

    async def finish(self, *, head: Mapping[str, Any], keys: Sequence[str], archived_at: str) -> tuple[str, int]:
        """Write manifest and trailer; return the whole file's checksum and size."""
        await self._flush()
        manifest = Manifest(
            session_id=self._session_id,
            archived_at=archived_at,
            first_seq=self._first_seq,
            last_seq=self._last,
            events=self._events,
            head=dict(head),
            keys=tuple(keys),
            blobs=tuple(self._blobs),
            blocks=tuple(self._blocks),
        )
        stored, raw_size, digest = manifest.to_bytes()
        place = self._offset
        await self._write(stored)
        trailer = Trailer(place, len(stored), raw_size, digest, self._whole.digest())
        checksum = self._whole.hexdigest()
        await self._write(trailer.to_bytes())
        return checksum, self._offset

    async def _add_block(self, kind: BlockKind, raw: bytes, *, first: int, last: int, digest: str = "") -> None:
        if len(raw) > MAX_BLOCK_BYTES:
            raise InputError(
                reason=f"event {first} of {self._session_id} has {len(raw)} bytes, too many for an archive"
            )
        stored = await asyncio.to_thread(pack, raw)
        checksum = hashlib.sha256(raw).hexdigest()
        self._blocks.append(Block(kind, self._offset, len(stored), len(raw), checksum, first, last, digest))
        await self._write(stored)

    async def _write(self, data: bytes) -> None:
        self._whole.update(data)
        self._offset += len(data)
        await self._sink.write(data)


def _event_lines(event: StoredEvent) -> bytes:
    """Return an event as two lines: its envelope, which says how long the other is, and its body byte for byte."""
    event_id, event_type, timestamp, body, tokens, turn_id, trace_id, principal, v, _ = event.record
    envelope = (event.seq, event_id, event_type, timestamp, tokens, turn_id, trace_id, principal, v, len(body))
    return b"%s\n%s\n" % (orjson.dumps(envelope), body)
