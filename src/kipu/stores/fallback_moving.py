"""What a pair of stores does with events that have their numbers already: always in the primary, after what the spool holds."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from kipu.errors import StoreUnavailableError
from kipu.ports.store import MAX_PAGE, EventStore, Lease, Record, StoredEvent, StoreMark, Tombstone


class MovingInPrimary:
    """The part of `FallbackStore` that moves events: while the primary refuses, nothing of it is done."""

    async def _merge(self, session_id: str) -> object:
        raise NotImplementedError

    async def _there(self) -> EventStore:
        raise NotImplementedError

    async def _held(self) -> set[str]:
        raise NotImplementedError

    async def mark(self) -> StoreMark | None:
        """Return the primary's mark."""
        return await (await self._there()).mark()

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Mark the primary, once the spool holds nothing: what it takes in later is refused when it is to be merged, and stays."""
        held = await self._held() if mark is not None else ()
        if held:
            raise StoreUnavailableError(store="fallback", reason=f"its spool still holds {len(held)} sessions")
        await (await self._there()).set_mark(mark, expected=expected)

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return the ids that were erased in the primary."""
        return await (await self._there()).tombstones(after=after, limit=limit)

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Bury ids in the primary."""
        await (await self._there()).bury(tombstones)

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Merge what the spool holds, then take shared events into the primary."""
        await self._merge(session_id)
        return await (await self._there()).adopt(session_id, records, after=after, lease=lease)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Merge what the spool holds, then let the primary let go of the session's events."""
        await self._merge(session_id)
        await (await self._there()).offload(session_id, until=until, blobs=blobs, archive=archive, lease=lease)

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent] = (),
        *,
        lease: Lease,
        complete: bool = False,
        archive: Mapping[str, Any] | None = None,
    ) -> None:
        """Merge what the spool holds, then give events back to the primary."""
        await self._merge(session_id)
        await (await self._there()).reload(session_id, events, lease=lease, complete=complete, archive=archive)
