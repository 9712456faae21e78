"""What a conversion that was stopped has left beside a store, as a place that an erasure must empty (C20)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.store import EventStore
from kipu.sealing.conversion_files import ConversionFiles
from kipu.stores.conversion_mark import ConversionMark, mark_path


class ConversionPlace:
    """Throw away a copy that was begun, and the store before it where that was to go: both have all that the store had.

    What somebody wanted to keep, by `--keep`, is theirs, and stays. Contract: `ErasurePlace`.
    """

    name = "conversion"

    def __init__(self, kind: str, path: Path, *, url: str) -> None:
        self._kind = kind
        self._path = path
        self._url = url

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return that something may be here while there is a mark."""
        return {} if mark_path(self._path).exists() else None

    async def settle_fork(self, head: Head) -> None:
        """Do nothing: a fork has nothing here that it needs."""

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Empty the place. Raises: StoreConvertingError (another process is at it now)."""
        return await asyncio.to_thread(self._empty)

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Empty the place, which may have the person's memory too."""
        return await asyncio.to_thread(self._empty)

    def _empty(self) -> Emptied:
        if not mark_path(self._path).exists():
            return Emptied()
        mark, files = (
            ConversionMark(self._path, store=self._url),
            ConversionFiles(self._kind, self._path, url=self._url),
        )
        try:
            step = mark.said.get("step")
            if step == "copy":
                files.discard_copy()
            elif step == "clear" and not mark.said.get("kept"):
                files.destroy_before()
            elif step is not None:
                return Emptied()
            mark.remove()  # also one that says nothing: nothing was begun
        finally:
            mark.close()
        return Emptied({"conversions": 1})

    def roots(self) -> Sequence[Path]:
        """Return nothing of its own: what stands beside a store under its name is looked at with it."""
        return ()
