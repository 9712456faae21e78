"""Reading events, blobs and keys; and looking for what is damaged."""

from __future__ import annotations

import hashlib
from typing import Any

from kipu.errors import BlobNotFoundError
from kipu.ports.store import IDEMPOTENCY_RETENTION_S, Damage, Outcome, StoredEvent
from kipu.stores.event_row import FIELDS, event_of
from kipu.stores.offloading import is_whole, refuse_archived
from kipu.stores.postgres.database import Database
from kipu.stores.postgres.heads import Heads, sql

_FIELDS = ", ".join(f"e.{name}" for name in FIELDS)
_HIDDEN = "(SELECT h.hidden_seq FROM {schema}.heads AS h WHERE h.session_id = %s)"
_READ = (
    f"SELECT {_FIELDS} FROM {{schema}}.events AS e WHERE e.session_id = %s AND e.seq > %s AND e.seq <= %s"
    f" AND e.seq > {_HIDDEN} ORDER BY e.seq"
)
_END = (1 << 63) - 1
_OUTCOMES = (
    "SELECT key, first_seq, last_seq FROM {schema}.idempotency WHERE session_id = %s AND at_us > %s ORDER BY first_seq"
)
_PAGE = 1_000
_TRIES = 4


class Reader:
    """Read one database."""

    def __init__(self, database: Database, heads: Heads) -> None:
        self._database = database
        self._heads = heads

    async def read(
        self, session_id: str, *, after: int, until: int | None, limit: int, backwards: bool
    ) -> list[StoredEvent]:
        """Return at most `limit` own events with after < seq <= until: the first ones, or the last, newest first."""
        text = sql(f"{_READ} {'DESC' if backwards else 'ASC'} LIMIT %s", self._database)
        values = (session_id, after, _END if until is None else until, session_id, limit)
        rows = await self._database.rows(text, values)
        found = [event for event in (event_of(session_id, row) for row in rows) if event is not None]
        if not is_whole(found, after=after, limit=limit, backwards=backwards):
            # Until head and events are of one moment: an archive may take or give them meanwhile.
            for _ in range(_TRIES):
                row = await self._heads.found(session_id)
                data = row.data or {}
                refuse_archived(data, after=after, until=until, limit=limit, backwards=backwards)
                if after >= data.get("last_seq", 0):
                    return []
                rows = await self._database.rows(text, values)
                if (await self._heads.found(session_id)).version == row.version:
                    break
            found = [event for event in (event_of(session_id, row) for row in rows) if event is not None]
        return found

    async def outcomes(self, session_id: str, *, now_us: int) -> list[Outcome]:
        """Return the session's batches that have a key within its retention."""
        await self._heads.found(session_id)
        values = (session_id, now_us - IDEMPOTENCY_RETENTION_S * 1_000_000)
        return [Outcome(key.decode(), first, last) for key, first, last in await self._rows(_OUTCOMES, values)]

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        rows = await self._rows("SELECT session_id FROM {schema}.bindings WHERE key = %b", (key.encode(),))
        return rows[0][0] if rows else None

    async def keys(self, session_id: str) -> list[str]:
        """Return the keys that lead to the session."""
        await self._heads.found(session_id)
        rows = await self._rows("SELECT key FROM {schema}.bindings WHERE session_id = %s ORDER BY key", (session_id,))
        return [row[0].decode() for row in rows]

    async def blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes. Raises: BlobNotFoundError."""
        text = "SELECT data FROM {schema}.blobs WHERE session_id = %s AND digest = %s"
        rows = await self._rows(text, (session_id, digest)) if "\x00" not in digest else []
        if not rows:
            raise BlobNotFoundError(session_id=session_id, digest=digest)
        return bytes(rows[0][0])

    async def blobs(self, session_id: str) -> list[str]:
        """Return the digests of the session's own blobs."""
        await self._heads.found(session_id)
        text = "SELECT digest FROM {schema}.blobs WHERE session_id = %s ORDER BY digest"
        return [row[0] for row in await self._rows(text, (session_id,))]

    async def verify(self, session_id: str | None) -> list[Damage]:
        """Return what is damaged in one session, or in all."""
        if session_id is not None:
            await self._heads.found(session_id)
            return await self._damages(session_id)
        found: list[Damage] = []
        after = ""
        text = "SELECT session_id FROM {schema}.heads WHERE data IS NOT NULL AND session_id > %s ORDER BY session_id LIMIT 500"
        while rows := await self._rows(text, (after,)):
            for (one,) in rows:
                found += await self._damages(one)
            after = rows[-1][0]
        return found

    async def _damages(self, session_id: str) -> list[Damage]:
        row = (await self._heads.load(session_id)).data
        if row is None:
            return []
        found: list[Damage] = []
        seq = max(row.get("base_seq", 0), row.get("offloaded_seq", 0))
        text = f"{_READ} ASC LIMIT %s"
        while rows := await self._rows(text, (session_id, seq, row["last_seq"], session_id, _PAGE)):
            for event in rows:
                if event[0] != seq + 1:
                    found.append(_lost(session_id, seq + 1, event[0] - 1))
                if event_of(session_id, event) is None:
                    found.append(Damage(session_id, "checksum", "events", seq=event[0]))
                seq = event[0]
        if seq < row["last_seq"]:
            found.append(_lost(session_id, seq + 1, row["last_seq"]))
        for digest, data in await self._rows(
            "SELECT digest, data FROM {schema}.blobs WHERE session_id = %s", (session_id,)
        ):
            if hashlib.sha256(data).hexdigest() != digest:
                found.append(Damage(session_id, "checksum", "blobs", detail=digest))
        return found

    async def _rows(self, text: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return await self._database.rows(sql(text, self._database), values)


def _lost(session_id: str, first: int, last: int) -> Damage:
    return Damage(session_id, "gap", "events", seq=first, detail=f"events {first} to {last} are missing")
