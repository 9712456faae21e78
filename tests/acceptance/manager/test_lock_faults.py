"""The turn lock while its store is slow, fails for a moment, or has the session leased to another process (A37, A39, C3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kipu.errors import StoreUnavailableError
from kipu.events.conversation import AgentMessageEvent
from kipu.manager.session import Session
from kipu.ports.store import Lease
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.manager.conftest import Opener

LONGEST_S = 60.0


class LeasingStore(WrappedStore):
    """A store whose answers about leases can be held up, or be errors."""

    before_claim: Callable[[], Awaitable[Any]] | None = None
    before_renewal: Callable[[], Awaitable[Any]] | None = None

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        if self.before_claim is not None:
            await self.before_claim()
        return await super().claim(session_id, owner=owner, ttl_s=ttl_s)

    async def renew(self, lease: Lease) -> Lease:
        if self.before_renewal is not None:
            await self.before_renewal()
        return await super().renew(lease)


async def leased(opener: Opener, **settings: Any) -> tuple[LeasingStore, Session]:
    """Return a session over such a store, and the store."""
    manager = await opener(**settings)
    store = LeasingStore(manager.store)
    manager.store = store
    return store, await manager.get_or_create("cli:p")


async def test_a_renewal_that_fails_once_is_done_by_the_next(opener: Opener) -> None:
    """A store that is away for a moment costs no turn: the lease is renewed when it is back (C3, C16)."""
    store, session = await leased(opener, lease_ttl_s=0.3)
    tries, is_back = 0, asyncio.Event()

    async def fail_at_first() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailableError(store="test", reason="away")
        is_back.set()

    store.before_renewal = fail_at_first
    async with session.turn() as turn:
        async with asyncio.timeout(LONGEST_S):
            await is_back.wait()
        await turn.add_event(AgentMessageEvent(content="still here"))
    assert session.head.open_turn is None


async def test_a_renewal_under_way_is_over_before_the_lock_is_free(opener: Opener) -> None:
    """What a slow renewal says is about the lease that it was for, and touches neither a free lock nor the next holder (C3)."""
    store, session = await leased(opener, lease_ttl_s=0.3)
    began, go_on, ended = asyncio.Event(), asyncio.Event(), False

    async def be_slow() -> None:
        nonlocal ended
        began.set()
        await go_on.wait()
        ended = True

    store.before_renewal = be_slow
    await session.lock.acquire()
    async with asyncio.timeout(LONGEST_S):
        await began.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await session.lock.release()
    assert ended
    assert session.lock.token is None
    assert not session.lock.in_use
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="mine"))


async def test_a_new_session_waits_for_no_turn_of_the_one_before(opener: Opener) -> None:
    """`/new` answers at once while the session before is at work here, or elsewhere, and leaves that one as it is (C13, A54)."""
    one, two = await opener(), await opener()
    before = await one.get_or_create("cli:p")
    async with asyncio.timeout(LONGEST_S), before.lock:
        here = await one.new_session("cli:p")
    assert before.status == "active"
    theirs = await two.open(here.session_id)
    async with asyncio.timeout(LONGEST_S), theirs.lock:
        await one.new_session("cli:p")
        assert not here.lock.in_use
    assert here.status == "active"
    async with asyncio.timeout(LONGEST_S), here.turn():
        pass


async def test_a_lock_that_the_store_could_not_give_is_free(opener: Opener) -> None:
    """An error of the store while a session is claimed leaves nobody holding it: the next who asks gets it (C16)."""
    store, session = await leased(opener)

    async def fail() -> None:
        raise StoreUnavailableError(store="test", reason="away")

    store.before_claim = fail
    with pytest.raises(StoreUnavailableError):
        await session.lock.acquire()
    with pytest.raises(StoreUnavailableError):
        await session.lock.try_acquire()
    assert not session.lock.in_use
    store.before_claim = None
    async with asyncio.timeout(LONGEST_S):
        assert await session.lock.try_acquire()
        await session.lock.release()
