"""What a SQLite store does while its sessions move to or from another store."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from kipu.ports.store import MAX_PAGE, StoreMark, Tombstone
from kipu.stores.paging import page_size
from kipu.stores.sqlite import mark_table
from kipu.stores.sqlite.committer import Committer, Job
from kipu.stores.sqlite.readers import Readers
from kipu.stores.store_mark import own_move
from kipu.stores.tables import key_tables
from kipu.stores.tables.heads import Heads

T = TypeVar("T")
_NO_NEWS: frozenset[str] = frozenset()


class MarkInDatabase:
    """The part of `SqliteStore` that is about its mark and the ids that are taken for ever.

    A mark is changed in a transaction like any other, and only one writes at a time: what comes after it has seen it.
    """

    _url: str
    _readers: Readers
    _committer: Committer

    def _check_open(self) -> None:
        raise NotImplementedError

    async def _submit(self, job: Job[T]) -> T:
        raise NotImplementedError

    async def mark(self) -> StoreMark | None:
        """Return the store's mark."""
        self._check_open()
        return self._readers.here(mark_table.load)

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Let the store have this mark if it now has `expected`."""

        def run(heads: Heads) -> None:
            mark_table.change(heads, mark, expected=expected, store=self._url)
            self._committer.forget_mark()

        await self._submit(Job(run, synced=True, urgent=True, types=_NO_NEWS))
        self._committer.own_move = own_move(mark)

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return ids that were erased."""
        self._check_open()
        return await self._readers.soon(partial(key_tables.tombstones, after=after, limit=page_size(limit)))

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again."""

        def run(heads: Heads) -> None:
            key_tables.take_ids(heads.connection, tombstones)

        await self._submit(Job(run, synced=True, urgent=True, types=_NO_NEWS, change="content"))
