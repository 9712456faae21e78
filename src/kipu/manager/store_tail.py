"""One store made and kept the same as another one that is in use: what changes there is copied again, a session at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from kipu.errors import KipuError, SessionBusyError, SessionNotFoundError
from kipu.manager.copying import ABOUT_ONE, CopyProgress, CopyReport, Skipped, heads_of, tombstones_of
from kipu.manager.lock import SessionLock
from kipu.manager.replaying import difference
from kipu.manager.session_copy import Done, SessionCopy
from kipu.ports.head import Head, head_to_json
from kipu.ports.store import EventStore, Tombstone

T = TypeVar("T")
_AT_ONCE = 8  # sessions copied side by side: more of them wait for the same processor
_LEASE_S = 30.0
_FOLLOW_AGAIN_S = 1.0


class StoreTail:
    """Copy what differs: first everything, then what has changed since. Nobody else may write to the target meanwhile.

    Every event is compared once in the life of this object: what the target had already when it is met first, what is written
    when it is read back. Nothing is carried of leases, of the index, and of where a store has put its archives.
    """

    def __init__(
        self,
        source: EventStore,
        target: EventStore,
        *,
        owner: str,
        progress: Callable[[CopyProgress], None] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._owner = owner
        self._tell = progress
        self._done: dict[str, Done] = {}  # what of each session is the same in both
        self._erased: set[str] | None = None  # ids that are taken in the target
        self._lossy: set[str] = set()  # sessions for whose lost records the target has placeholders
        self._named: set[str] = set()  # sessions that the source's news named
        self._follower: asyncio.Task[None] | None = None
        self._progress = CopyProgress(0, 0, 0, 0)
        self._skipped: dict[str, Skipped] = {}
        self._notes: dict[str, None] = {}
        self._counts = CopyReport()

    @property
    def report(self) -> CopyReport:
        """Return what was done so far."""
        skipped, notes = tuple(self._skipped.values()), tuple(self._notes)
        return replace(self._counts, sessions=len(self._done), skipped=skipped, notes=notes)

    @property
    def behind(self) -> int:
        """Return how many sessions are known to have changed since they were copied."""
        return len(self._named)

    def begin(self) -> None:
        """Hear from now on what is appended to the source."""
        if self._follower is None:
            self._follower = asyncio.ensure_future(self._follow())

    async def end(self) -> None:
        """Hear no more."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with suppress(KipuError):  # what is missed here, a look at all sessions finds
                async for stored in self._source.follow():
                    self._named.add(stored.session_id)
            await asyncio.sleep(_FOLLOW_AGAIN_S)

    # ---- rounds ------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> int:
        """Copy what the news named since the last time; return how many sessions that was."""
        named, self._named = self._named, set()
        heads = [await self._source.head(session_id) for session_id in sorted(named)]
        await self._copy_all(head for head in heads if head is not None)
        await self._carry_erasures()
        return len(named)

    async def look_at_all(self) -> int:
        """Look at every session and every erased id of the source, and copy what differs; return how many sessions did."""
        self._named.clear()  # whatever is appended from here on is named anew
        heads = [head async for head in heads_of(self._source)]
        events = sum([head.last_seq - head.base_seq for head in heads])
        self._progress = CopyProgress(0, len(heads), 0, events)
        differing = [head for head in heads if self._done.get(head.session_id, Done()).last_seq != head.last_seq]
        await self._copy_all(differing)
        await self._carry_erasures()
        return len(differing)

    async def look_at_keys(self) -> int:
        """Let every key lead where it leads in the source now; return how many sessions others led to than were copied."""
        changed: list[Head] = []

        async def look(session_id: str) -> None:
            with suppress(SessionNotFoundError):
                keys = await self._source.keys(session_id)
                differ = tuple(keys) != self._done[session_id].keys
                head = await self._source.head(session_id) if differ else None
                if head is not None:
                    changed.append(head)

        await self._side_by_side(look, list(self._done))
        await self._copy_all(changed)
        return len(changed)

    async def first_difference(self) -> str | None:
        """Compare every head of both stores as they are now; return what differs first, None where nothing does."""
        there = {head.session_id: head async for head in heads_of(self._target)}
        async for head in heads_of(self._source):
            session_id, copy = head.session_id, there.pop(head.session_id, None)
            if session_id in self._skipped:
                continue
            if copy is None:
                return f"session {session_id} is not in the target"
            counted = session_id not in self._lossy
            name = difference(head_to_json(head), head_to_json(copy), counted=counted)
            if name is not None or head.last_seq != copy.last_seq:
                return f"session {session_id} has another {name or 'last_seq'} in the target"
        own = [session_id for session_id in there if session_id not in self._skipped]
        return f"session {own[0]} is in the target and not in the source" if own else None

    async def _side_by_side(self, work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
        waiting = iter(items)

        async def lane() -> None:
            for item in waiting:
                await work(item)

        lanes = [asyncio.ensure_future(lane()) for _ in range(_AT_ONCE)]
        try:
            await asyncio.gather(*lanes)
        finally:
            for each in lanes:
                each.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    # ---- one session -------------------------------------------------------------------------------------------------

    async def _copy_all(self, heads: Iterable[Head]) -> None:
        await self._side_by_side(self._copy, heads)

    async def _copy(self, head: Head) -> None:
        session_id = head.session_id
        work = SessionCopy(
            self._source,
            self._target,
            head=head,
            owner=self._owner,
            verify=True,
            moved=self._moved,
            done=self._done.get(session_id),
            alone=True,
        )
        try:
            await work.run()
        except SessionNotFoundError:
            return  # erased at this moment: its tombstone is carried
        except ABOUT_ONE as error:
            self._skipped[session_id] = Skipped(session_id, error.code, str(error))
            self._done.pop(session_id, None)
        else:
            self._skipped.pop(session_id, None)
            self._done[session_id] = work.done
            if work.lost:
                self._lossy.add(session_id)
        self._notes |= dict.fromkeys(work.notes)
        counts = self._counts
        self._counts = replace(
            counts,
            events=counts.events + work.events,
            blobs=counts.blobs + work.blobs,
            bindings=counts.bindings + work.bindings,
            lost=counts.lost + work.lost,
        )

    def _moved(self, events: int) -> None:
        done = self._progress.events_done + events
        total = max(self._progress.events_total, done)
        self._progress = replace(self._progress, events_done=done, events_total=total)
        if self._tell is not None:
            self._tell(self._progress)

    # ---- erased ones -------------------------------------------------------------------------------------------------

    async def _carry_erasures(self) -> None:
        """Erase from the target what was erased from the source, and let its id be taken there too."""
        if self._erased is None:
            self._erased = {each.session_id async for page in tombstones_of(self._target) for each in page}
        async for page in tombstones_of(self._source):
            new = [each for each in page if each.session_id not in self._erased]
            for each in new:
                await self._erase(each)
            if new:
                await self._target.bury(new)
                self._erased.update(each.session_id for each in new)
                self._counts = replace(self._counts, erased=self._counts.erased + len(new))

    async def _erase(self, tombstone: Tombstone) -> None:
        session_id = tombstone.session_id
        self._done.pop(session_id, None)
        self._skipped.pop(session_id, None)
        if await self._target.head(session_id) is None:
            return
        lock = SessionLock(self._target, session_id, owner=self._owner, ttl_s=_LEASE_S)
        await lock.acquire(wait_s=_LEASE_S)
        try:
            if lock.lease is None:
                raise SessionBusyError(session_id=session_id, owner=self._owner)
            await self._target.erase(session_id, lease=lock.lease)
        finally:
            await lock.release()
