"""`Presence`: which machines have a worker, told by leases in the store, so that nobody's clock is asked (B61)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from kipu.errors import KipuError, SessionExistsError, SharedRootError, StoreClosedError
from kipu.events.boundary import SessionInitEvent
from kipu.manager.manager import SessionManager
from kipu.ports.head import Head
from kipu.ports.store import Lease
from kipu.runtime.workspaces.place import Place, Placing
from kipu.session.patch import patch_for

logger = logging.getLogger(__name__)

TTL_S = 30.0
_LOOK_AGAIN_S = 1.0
ROOT_ID = "kipu-shared-root"
_MARK, _PATH, _PLACE = "kipu.shared_root", "kipu.shared_path", "kipu.place"


class Presence:
    """Say that this process works at its places, for as long as it is entered, and whether somebody does at others.

    Each place has a session of Kipu's own, which nobody owns and no list shows; whoever works there holds its lease, one for
    all. A lease that is renewed is alive: that its end moves is seen, and not read as a time of any clock.
    """

    def __init__(
        self, manager: SessionManager, placing: Placing, *, monotonic_s: Callable[[], float], ttl_s: float = TTL_S
    ) -> None:
        self._manager = manager
        self._placing = placing
        self._monotonic_s = monotonic_s
        self._ttl_s = ttl_s
        self._leases: dict[str, Lease] = {}
        self._seen: dict[str, tuple[str | None, float]] = {}
        self._answers: dict[str, tuple[bool, float]] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin. Raises: SharedRootError (the shared directory is not the one of this store's workers), StoreError."""
        await self.confirm()
        if self._placing.mode != "local":
            await self._hold()
            self._renewing = asyncio.ensure_future(self._renew_often())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for lease in self._leases.values():
            with suppress(KipuError):
                await self._manager.store.release(lease)
        self._leases.clear()

    async def confirm(self) -> None:
        """Make sure that the shared directory, where one is named, is what every worker of the store sees. Raises: SharedRootError."""
        placing = self._placing
        if placing.root is None:
            return
        head = await self._manager.store.head(ROOT_ID)
        noted = None if head is None else head.metadata
        mark = await asyncio.to_thread(placing.mark_root, create=noted is None)
        if noted is None and mark is not None:
            await self._begin(ROOT_ID, {_MARK: mark, _PATH: str(placing.root)})
            head = await self._manager.store.head(ROOT_ID)
            noted = {} if head is None else head.metadata
        if noted is None or mark is None or noted.get(_MARK) != mark:
            raise SharedRootError(root=str(placing.root), reason="it has not the mark that the first worker left there")
        if noted.get(_PATH) != str(placing.root):
            raise SharedRootError(root=str(placing.root), reason=f"the others have it at {noted.get(_PATH)}")
        placing.confirm_root(mark)

    async def is_worked_at(self, place: Place) -> bool:
        """Return True unless nobody has said for a while that they work there; looked at once a second at most."""
        answer, at_s = self._answers.get(place.id, (False, float("-inf")))
        if self._monotonic_s() - at_s > _LOOK_AGAIN_S:
            answer = await self._is_worked_at(place)
            self._answers[place.id] = (answer, self._monotonic_s())
        return answer

    async def _is_worked_at(self, place: Place) -> bool:
        head = await self._manager.store.head(place.id)
        if head is None or head.lease_owner is None:
            self._seen.pop(place.id, None)
            return False
        until, since_s = self._seen.get(place.id, (None, 0.0))
        now_s = self._monotonic_s()
        if head.lease_until != until:
            self._seen[place.id] = (head.lease_until, now_s)
            return True
        return now_s - since_s < self._ttl_s

    async def _hold(self) -> None:
        """Hold or renew the lease of each place; of one that another process here holds, try again with the next round."""
        store = self._manager.store
        for place in await asyncio.to_thread(self._placing.places):
            lease = self._leases.pop(place.id, None)
            with suppress(KipuError):
                if lease is not None:
                    self._leases[place.id] = await store.renew(lease)
                    continue
            if await store.head(place.id) is None:
                await self._begin(place.id, {_PLACE: place.name})
            claimed = await store.claim(place.id, owner=self._manager.owner, ttl_s=self._ttl_s)
            if claimed is not None:
                self._leases[place.id] = claimed

    async def _renew_often(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            try:
                await self._hold()
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("that work is done here could not be said: %s", error)

    async def _begin(self, session_id: str, metadata: dict[str, str]) -> None:
        """Make a session of Kipu's own, unless it is there."""
        init = SessionInitEvent(key=f"kipu:{session_id}", metadata={"pinned": True, **metadata})
        prepared = await self._manager.writer.prepare(session_id, init)
        with suppress(SessionExistsError):
            await self._manager.store.append(session_id, [prepared.record], head=patch_for([prepared.event]))


def place_name(head: Head) -> str:
    """Return the name of the place whose session this is."""
    return str(head.metadata.get(_PLACE, head.session_id))
