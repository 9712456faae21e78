"""The turn lock: strictly one holder per session, in this process by a FIFO lock and between processes by the store's lease."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from kipu.errors import LeaseLostError, SessionBusyError, SessionNotFoundError, StoreError
from kipu.ports.store import EventStore, Lease

DEFAULT_TTL_S = 15.0
_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.25


class SessionLock:
    """Hold one session: waiters get it in the order they asked (A39), and no other process has it meanwhile (C3).

    While it is held, the lease is renewed at a third of its time to live. When a renewal finds it gone, `token` raises, so
    that the holder stops before its next append.
    """

    def __init__(self, store: EventStore, session_id: str, *, owner: str, ttl_s: float = DEFAULT_TTL_S) -> None:
        self._store = store
        self.session_id = session_id
        self.owner = owner
        self._ttl_s = ttl_s
        self._local = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None
        self._lease: Lease | None = None
        self._lost = False
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._waiting = 0
        self.turn_id: str | None = None  # the turn that runs under it

    @property
    def in_use(self) -> bool:
        """Return True while somebody holds it or waits for it (A37)."""
        return self._waiting > 0 or self._local.locked()

    @property
    def mine(self) -> bool:
        """Return True when the current task is the holder."""
        return self._holder is not None and self._holder is asyncio.current_task()

    @property
    def token(self) -> int | None:
        """Return the fencing token while the lease is held, else None.

        Raises:
            LeaseLostError: it was taken over; nothing more may be appended under it.
        """
        if self._lease is None:
            return None
        if self._lost:
            raise LeaseLostError(session_id=self.session_id, token=self._lease.token, current="unknown")
        return self._lease.token

    async def acquire(self, *, wait_s: float | None = None) -> None:
        """Wait for the lock, at most `wait_s`.

        Raises:
            SessionBusyError: it was not free in time.
        """
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_s):
                await self._local.acquire()
                try:
                    self._lease = await self._claim()
                except BaseException:
                    self._local.release()
                    raise
        except TimeoutError:
            head = await self._store.head(self.session_id)
            owner = head.lease_owner if head and head.lease_owner else "another task of this process"
            raise SessionBusyError(session_id=self.session_id, owner=owner) from None
        finally:
            self._waiting -= 1
        self._hold()

    async def try_acquire(self) -> bool:
        """Take the lock if it is free here and everywhere else; never wait for anybody."""
        if self._local.locked():
            return False
        await self._local.acquire()
        try:
            self._lease = await self._store.claim(self.session_id, owner=self.owner, ttl_s=self._ttl_s)
        except BaseException:
            self._local.release()
            raise
        if self._lease is None:
            self._local.release()
            return False
        self._hold()
        return True

    def _hold(self) -> None:
        self._lost = False
        self._holder = asyncio.current_task()
        self._schedule()

    async def release(self) -> None:
        """Give the lock back, also when the lease is lost."""
        lease, self._lease, self._holder = self._lease, None, None
        if self._timer is not None:
            self._timer.cancel()
        renewal, self._renewal = self._renewal, None
        try:
            if renewal is not None and not renewal.done():
                await renewal
            if lease is not None:
                await self._store.release(lease)
        except SessionNotFoundError:
            pass  # erased while held: nothing is left to give back
        finally:
            self._local.release()

    @property
    def lease(self) -> Lease | None:
        """Return the lease while it is held."""
        return self._lease

    async def _claim(self) -> Lease:
        wait_s = _FIRST_WAIT_S
        while True:
            lease = await self._store.claim(self.session_id, owner=self.owner, ttl_s=self._ttl_s)
            if lease is not None:
                return lease
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._ttl_s / 3, self._start_renewal)

    def _start_renewal(self) -> None:
        self._renewal = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        lease = self._lease
        if lease is None:
            return
        try:
            renewed = await self._store.renew(lease)
        except LeaseLostError:
            self._lost = True
            return
        except StoreError:  # the store may be back for the next try; fencing protects the log meanwhile
            renewed = lease
        if self._lease is lease:
            self._lease = renewed
            self._schedule()

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()
