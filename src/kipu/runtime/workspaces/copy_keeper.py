"""`CopyKeeper`: copies of sessions' files on this machine go when their session is gone, or when they are long out of use."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from kipu.errors import KipuError, StoreClosedError
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.runtime.workspaces.carried import LocalCopies
from kipu.runtime.workspaces.place import Place, Placing
from kipu.runtime.workspaces.removal import remove_tree

logger = logging.getLogger(__name__)

EVERY_S = 600.0
UNUSED_S = 7 * 24 * 3600.0


class CopyKeeper:
    """Look over the copies when a worker begins and now and then: an erasure on another machine reaches this one so (C20)."""

    def __init__(
        self, manager: SessionManager, placing: Placing, *, copies: LocalCopies, every_s: float = EVERY_S
    ) -> None:
        self._manager = manager
        self._placing = placing
        self._copies = copies
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._placing.mode in ("stored", "bound"):
            self._task = asyncio.ensure_future(self._often())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def tidy(self) -> int:
        """Remove what is nobody's any more, and copies of a week ago that another machine went on from; return how many."""
        removed = 0
        for session_id in await asyncio.to_thread(self._copies.all):
            if await self._manager.store.head(session_id) is None:
                await asyncio.to_thread(self._remove, session_id)
                removed += 1
            elif await asyncio.to_thread(self._copies.unused_s, session_id) > UNUSED_S:
                removed += await self._remove_left(session_id)
        return removed

    async def _remove_left(self, session_id: str) -> int:
        """Remove a copy that is not the living one, under the session's lock, so that no turn brings files here meanwhile."""
        head = await self._manager.store.head(session_id)
        if head is None or not self._is_left((head.workspace or {}).get("at")):
            return 0
        session = await self._manager.open(session_id, principal=owner_of(head))
        if not await session.lock.try_acquire():
            return 0
        try:
            await session.refresh()
            if not self._is_left((session.head.workspace or {}).get("at")):
                return 0
            await asyncio.to_thread(self._remove, session_id)
            return 1
        finally:
            await session.lock.release()

    def _is_left(self, at: object) -> bool:
        place = Place.from_json(at)
        return place is not None and place.id != self._placing.host.id

    def _remove(self, session_id: str) -> None:
        self._copies.forget(session_id)
        remove_tree(self._copies.base / session_id)

    async def _often(self) -> None:
        while True:
            try:
                await self.tidy()
            except StoreClosedError:
                return
            except (KipuError, OSError) as error:
                logger.warning("copies of files could not be looked over: %s", error)
            await asyncio.sleep(self._every_s)
