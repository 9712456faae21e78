"""Reading events, blobs and keys; and looking for what is damaged. A page and its head are of one moment: one script reads both."""

from __future__ import annotations

import hashlib
from typing import Any

from kipu.errors import BlobNotFoundError, SessionArchivedError, SessionNotFoundError
from kipu.ports.store import IDEMPOTENCY_RETENTION_S, MAX_PAGE, Damage, Outcome, StoredEvent
from kipu.stores.valkey.appending import Once
from kipu.stores.valkey.event_value import ReadEvent, read_value
from kipu.stores.valkey.heads import Heads
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.places import EVERY
from kipu.stores.valkey.scripts import READ
from kipu.stores.valkey.server import Server

_END = 2**53 - 1
_MOST_EVENTS = 256  # that one script reads, and about so many bytes
_MOST_BYTES = 4_000_000
_PAGE = 500


class Reader:
    """Read one store."""

    def __init__(self, server: Server, keys: KeyNames, *, heads: Heads) -> None:
        self._server = server
        self._keys = keys
        self._heads = heads

    async def read(
        self, session_id: str, *, after: int, until: int | None, limit: int, backwards: bool
    ) -> list[StoredEvent]:
        """Return at most `limit` own events with after < seq <= until: the first ones, or the last, newest first."""
        rows = await self.rows(session_id, after=after, until=until, limit=limit, backwards=backwards)
        return [row.event for row in rows if row.event is not None]

    async def rows(
        self, session_id: str, *, after: int, until: int | None, limit: int, backwards: bool = False
    ) -> list[ReadEvent]:
        """Return what stands there, with the numbers of the commits, and what cannot be read as no event."""
        session, till = self._keys.of(session_id), _END if until is None else min(until, _END)
        found: list[ReadEvent] = []
        while len(found) < limit:
            bounds = (after, till, limit - len(found), int(backwards), _MOST_EVENTS, _MOST_BYTES)
            kind, *answer = await self._server.look(
                READ, session.head, *bounds, session.adopted, session.returned, session.events
            )
            if kind == b"gone":
                raise SessionNotFoundError(session_id=session_id)
            if kind == b"archived":
                raise SessionArchivedError(session_id=session_id, until=answer[0])
            first, sizes, joined = answer
            if not sizes:
                break
            found += _taken_apart(session_id, first, sizes, joined, step=-1 if backwards else 1)
            if backwards:
                till = found[-1].seq - 1
            else:
                after = found[-1].seq
        return found

    async def outcomes(self, session_id: str, *, now_us: int) -> list[Outcome]:
        """Return the session's batches that have a key within its retention."""
        await self._heads.found(session_id)
        outcomes = self._keys.of(session_id).outcomes
        low, found, start = f"({now_us - IDEMPOTENCY_RETENTION_S * 1_000_000}", list[Outcome](), 0
        while keys := await self._server.ask("ZRANGEBYSCORE", outcomes, low, "+inf", "LIMIT", start, _PAGE):
            names = [key.decode() for key in keys]
            values = await self._server.ask("MGET", *map(self._keys.outcome, names))
            for name, value in zip(names, values, strict=True):
                once = None if value is None else Once.parse(value.decode())
                if once is not None and once.session_id == session_id:
                    found.append(Outcome(name, once.first_seq, once.last_seq))
            start += len(keys)
        return sorted(found, key=lambda outcome: outcome.first_seq)

    async def keys(self, session_id: str) -> list[str]:
        """Return the keys that lead to the session."""
        await self._heads.found(session_id)
        return sorted(key.decode() for key in await self._server.ask("SMEMBERS", self._keys.of(session_id).bindings))

    async def blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes. Raises: BlobNotFoundError."""
        data = await self._server.ask("HGET", self._keys.of(session_id).blobs, digest)
        if data is None:
            raise BlobNotFoundError(session_id=session_id, digest=digest)
        return bytes(data)

    async def blobs(self, session_id: str) -> list[str]:
        """Return the digests of the session's own blobs."""
        await self._heads.found(session_id)
        return sorted(name.decode() for name in await self._server.ask("HKEYS", self._keys.of(session_id).blobs))

    # ---- damage ------------------------------------------------------------------------------------------------------

    async def verify(self, session_id: str | None) -> list[Damage]:
        """Return what is damaged in one session, or in all."""
        if session_id is not None:
            await self._heads.found(session_id)
            return await self._damages(session_id)
        found: list[Damage] = []
        low, every = "-", self._keys.listed("created", EVERY)
        while members := await self._server.ask("ZRANGEBYLEX", every, low, "+", "LIMIT", 0, _PAGE):
            for member in members:
                found += await self._damages(member.decode().rpartition("\0")[2])
            low = f"({members[-1].decode()}"
        return found

    async def _damages(self, session_id: str) -> list[Damage]:
        row = (await self._heads.load(session_id)).data
        if row is None:
            return []
        found: list[Damage] = []
        seq = max(row.get("base_seq", 0), row.get("offloaded_seq", 0))
        while rows := await self.rows(session_id, after=seq, until=row["last_seq"], limit=MAX_PAGE):
            for read in rows:
                if read.event is None:
                    reason = "gap" if read.commit < 0 else "checksum"
                    found.append(Damage(session_id, reason, "events", seq=read.seq))
            seq = rows[-1].seq
        for digest in await self.blobs(session_id):
            data = await self._server.ask("HGET", self._keys.of(session_id).blobs, digest)
            if data is not None and hashlib.sha256(data).hexdigest() != digest:
                found.append(Damage(session_id, "checksum", "blobs", detail=digest))
        return found


def _taken_apart(session_id: str, first: int, sizes: bytes, joined: bytes, *, step: int) -> list[ReadEvent]:
    """Return the events of values that were joined; what is missing has the commit -1."""
    found, at = [], 0
    for number, size in enumerate(map(int, sizes.split(b","))):
        seq = first + step * number
        if size < 0:
            found.append(ReadEvent(seq, -1, None))
            continue
        found.append(read_value(session_id, joined[at : at + size], seq=seq))
        at += size
    return found


def taken_apart(sizes: bytes, joined: bytes) -> list[Any]:
    """Return values that were joined."""
    found, at = [], 0
    for size in map(int, sizes.split(b",")) if sizes else ():
        found.append(joined[at : at + size])
        at += size
    return found
