"""What a store of files does with events beside appending them: forks take over, archives take away and give back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kipu.ports.store import MAX_PAGE, Lease, Record, StoredEvent, StoreMark, Tombstone
from kipu.stores.jsonl.failure import translating
from kipu.stores.jsonl.layout import refuse_when_away
from kipu.stores.jsonl.letting_go import offload_lines, reload_lines
from kipu.stores.jsonl.marking import tombstones_in
from kipu.stores.jsonl.queue import CommitQueue
from kipu.stores.jsonl.settings import Settings
from kipu.stores.jsonl.shared import adopt_records
from kipu.stores.jsonl.shelf import WAIT_S, Shelf
from kipu.stores.paging import page_size


class MovingEvents:
    """The part of `JsonlStore` that moves events which have their numbers already, and whole stores."""

    _shelf: Shelf
    _settings: Settings
    _queue: CommitQueue

    def _check_writable(self) -> None:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    async def mark(self) -> StoreMark | None:
        """Return the store's mark."""
        self._check_open()
        with translating(self._settings.url):
            mark = self._shelf.mark.read()
            if mark is None:
                refuse_when_away(self._settings.root)
            return mark

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Let the store have this mark if it now has `expected`."""
        self._check_writable()
        await self._queue.drain()
        with translating(self._settings.url):
            await asyncio.to_thread(self._shelf.set_mark, mark, expected=expected)

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> list[Tombstone]:
        """Return ids that were erased."""
        self._check_open()
        with translating(self._settings.url):
            return await asyncio.to_thread(tombstones_in, self._settings.root, after=after, limit=page_size(limit))

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again."""
        self._check_writable()
        with translating(self._settings.url):
            await asyncio.to_thread(self._shelf.bury, tombstones)

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Take in shared events, out of sight until the session stands alone."""
        self._check_writable()
        self._shelf.mark.check()

        def take(wait_s: float) -> int:
            return adopt_records(self._shelf, session_id, records=records, after=after, lease=lease, wait_s=wait_s)

        with translating(self._settings.url):
            return await asyncio.to_thread(take, WAIT_S)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of the session's lines and of these blobs; its head stays, and what is searched for."""
        self._check_writable()
        self._shelf.mark.check()
        await self._queue.drain()
        with translating(self._settings.url):
            await asyncio.to_thread(
                offload_lines, self._shelf, session_id, until=until, blobs=blobs, archive=archive, lease=lease
            )

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent] = (),
        *,
        lease: Lease,
        complete: bool = False,
        archive: Mapping[str, Any] | None = None,
    ) -> None:
        """Take lines back, out of sight until it is `complete`."""
        self._check_writable()
        self._shelf.mark.check()
        with translating(self._settings.url):
            await asyncio.to_thread(
                reload_lines,
                self._shelf,
                session_id,
                events=events,
                lease=lease,
                complete=complete,
                archive=archive,
            )
