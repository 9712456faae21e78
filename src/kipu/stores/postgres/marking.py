"""The mark of a store on a server, and the ids that are taken for ever.

Whoever writes has decided on a head under its version, and saw the mark of that moment. So setting a mark that forbids writing
raises the version of every head once it stands: what was decided before either is there already, or is decided again.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from kipu.errors import StoreUnavailableError
from kipu.ports.store import MAX_PAGE, StoreMark, Tombstone
from kipu.stores.paging import page_size
from kipu.stores.postgres.database import Connection, Database, run
from kipu.stores.postgres.heads import Heads, sql
from kipu.stores.store_mark import check_expected, mark_from_text, mark_to_text, own_move

_BEGIN = "INSERT INTO {schema}.meta(name, value) VALUES ('mark', %s) ON CONFLICT DO NOTHING"
_REPLACE = "UPDATE {schema}.meta SET value = %s WHERE name = 'mark' AND value = %s"
_END = "DELETE FROM {schema}.meta WHERE name = 'mark' AND value = %s"
_IDS = "SELECT session_id FROM {schema}.heads WHERE data IS NOT NULL AND session_id > %s ORDER BY session_id LIMIT %s"
_RAISE = "UPDATE {schema}.heads SET version = version + %s::bigint WHERE session_id = ANY(%s) AND data IS NOT NULL"
_RAISED_BY = 1 << 40  # no change of a head raises it by so much
_AT_A_TIME = 1_000
_ERASED = "SELECT session_id, erased_at FROM {schema}.heads WHERE data IS NULL AND session_id > %s ORDER BY session_id LIMIT %s"
_BURY = (
    "INSERT INTO {schema}.heads(session_id, version, changed_at, erased_at, removed)"
    " SELECT t.session_id, 1, now(), t.erased_at, '{}' FROM unnest(%s::text[], %s::text[]) AS t(session_id, erased_at)"
    " ON CONFLICT DO NOTHING"
)


class MarkOnServer:
    """The part of `PostgresStore` that is about its mark."""

    _database: Database
    _heads: Heads

    def _check_open(self) -> None:
        raise NotImplementedError

    async def _may_write(self) -> None:
        raise NotImplementedError

    async def mark(self) -> StoreMark | None:
        """Return the store's mark."""
        self._check_open()
        said = await self._heads.mark()
        return None if said is None else mark_from_text(said)

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Let the store have this mark if it now has `expected`."""
        await self._may_write()
        try:
            done = await self._exchange(mark, expected)
        except StoreUnavailableError:
            if await self.mark() != mark:  # the answer was lost, or nothing was done
                raise
            done = True
        if not done:
            check_expected(await self.mark(), expected, store=self._database.url)
            raise StoreUnavailableError(store=self._database.url, reason="its mark is changed again and again")
        self._heads.own_move = own_move(mark)
        if mark is not None and mark.state != "leaving":
            await self._raise_versions()

    async def _exchange(self, mark: StoreMark | None, expected: StoreMark | None) -> bool:
        if mark is None and expected is None:
            return await self.mark() is None
        old, new = (None if each is None else mark_to_text(each) for each in (expected, mark))
        text, values = (_END, (old,)) if new is None else (_BEGIN, (new,)) if old is None else (_REPLACE, (new, old))
        return bool(await self._run(text, values))

    async def _run(self, text: str, values: Sequence[object]) -> int:
        statement = sql(text, self._database)

        async def work(connection: Connection) -> int:
            return await run(connection, statement, values=values)

        return await self._database.changing(work)

    async def _raise_versions(self) -> None:
        after = ""
        while rows := await self._database.rows(sql(_IDS, self._database), (after, _AT_A_TIME)):
            await self._run(_RAISE, (_RAISED_BY, [row[0] for row in rows]))
            after = rows[-1][0]

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return ids that were erased."""
        self._check_open()
        rows = await self._database.rows(sql(_ERASED, self._database), (after, page_size(limit)))
        return [Tombstone(session_id, erased_at or "") for session_id, erased_at in rows]

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again."""
        await self._may_write()
        self._heads.check(await self._heads.mark())
        await self._run(_BURY, tuple([list(column) for column in zip(*tombstones, strict=True)] or [[], []]))
