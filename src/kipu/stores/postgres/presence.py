"""Releases at work: each notes that it is, so that nobody narrows the tables under it, and learns when it became too old to write."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kipu.errors import NewerFormatError, StoreReadOnlyError, StoreUnavailableError, StoreUrlError
from kipu.stores.postgres import schema
from kipu.stores.postgres.database import Connection, Database, fetch, run
from kipu.stores.postgres.heads import sql

BEAT_S = 30.0
AT_WORK_S = 120.0  # after its last note; several beats, so that one that was lost means nothing
_PREFIX = "open."
_NOW_US = "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# Noted by another a moment ago is as good as noted.
_NOTE = (
    f"INSERT INTO {{schema}}.meta AS m(name, value) VALUES (%s, ({_NOW_US})::text)"
    f" ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE m.value::bigint < {_NOW_US} - 10000000"
)
# Touched, so that whoever of them opens the store at this moment waits here, and then finds itself too old.
_NOTED = f"UPDATE {{schema}}.meta SET value = value WHERE name LIKE 'open.%%' RETURNING name, ({_NOW_US} - value::bigint)::bigint"


class Presence:
    """Note every half a minute that this release is at work in a schema."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._beating: asyncio.Task[None] | None = None
        self.refusal: NewerFormatError | None = None

    async def begin(self) -> None:
        """Note it, and go on doing so. Raises: StoreUrlError where the schema is not Kipu's."""
        await self._look()
        if self.refusal is None:
            await self._note()
            await self._look()  # once more: it may have been narrowed just before it was noted
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            with suppress(StoreUnavailableError):
                if self.refusal is None:
                    await self._note()
                await self._look()

    async def _note(self) -> None:
        values = (f"{_PREFIX}{schema.FORMAT}",)
        with suppress(StoreReadOnlyError):  # a standby, or a role that only reads: it will write nothing
            await self._database.changing(lambda connection: run(connection, sql(_NOTE, self._database), values=values))

    async def _look(self) -> None:
        meta: dict[str, str] = dict(await self._database.rows(sql(schema.READ_META, self._database)))
        if meta.get("kind") != "kipu":
            name = self._database.address.schema
            raise StoreUrlError(url=self._database.url, reason=f"the schema {name} is not Kipu's")
        oldest = int(meta.get("oldest", 0))
        too_old = oldest > schema.FORMAT
        self.refusal = (
            NewerFormatError(store=self._database.url, found=oldest, known=schema.FORMAT) if too_old else None
        )

    async def close(self) -> None:
        """Note nothing any more. The last note stays until it is old: others of this release may be at work."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)


async def at_work(connection: Connection, database: Database) -> dict[int, float]:
    """Return which formats' releases are at work, and how many seconds ago each was last heard of; others wait to open meanwhile."""
    rows = await fetch(connection, sql(_NOTED, database))
    ages = {int(name.removeprefix(_PREFIX)): age_us / 1_000_000 for name, age_us in rows}
    return {number: age_s for number, age_s in ages.items() if age_s < AT_WORK_S}
