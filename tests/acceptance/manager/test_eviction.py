"""What leaves memory, when, and what is stored before it does (A45-A47, B23, B31, B45)."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kipu.events.boundary import NoteEvent
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.ports.head import Head
from kipu.ports.store import Appended
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_cache import SMALL, FullStore, filled_until_jump


class WatchedStore(WrappedStore):
    """A store that counts heads, lets others run while one is read, and can be made to do something before an append."""

    heads = 0
    before_append: Callable[[], Awaitable[None]] | None = None

    async def head(self, session_id: str) -> Head | None:
        self.heads += 1
        await asyncio.sleep(0)
        return await super().head(session_id)

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        if self.before_append is not None:
            await self.before_append()
        return await super().append(*args, **kwargs)


async def test_the_least_recently_used_session_goes_first(opener: Opener) -> None:
    """Using a session again makes it the newest: another one leaves memory (A45)."""
    manager = await opener(max_sessions=2)
    a, b, c = [await manager.create_session() for _ in range(3)]
    first, second = weakref.ref(await manager.open(a)), weakref.ref(await manager.open(b))
    await manager.open(a)
    await manager.open(c)
    gc.collect()
    assert first() is not None
    assert second() is None


async def test_two_tasks_that_open_one_session_get_one_object(opener: Opener) -> None:
    """However the reading of one session interleaves, there is never a second object (A45)."""
    manager = await opener()
    session_id = await manager.create_session()
    manager.store = WatchedStore(manager.store)
    opened = await asyncio.gather(*[manager.open(session_id) for _ in range(4)])
    assert all(session is opened[0] for session in opened)


async def test_memory_is_asked_before_the_store(opener: Opener) -> None:
    """A session that is in memory is returned without a question to the store (B23, A46)."""
    manager = await opener()
    session_id = await manager.create_session()
    store = manager.store = WatchedStore(manager.store)
    session = await manager.get_session(session_id)
    asked = store.heads
    assert asked > 0
    assert await manager.get_session(session_id) is session
    assert store.heads == asked


async def test_eviction_writes_nothing_to_a_session_in_use(opener: Opener) -> None:
    """A session in use is passed over: neither dropped nor saved, for its holder will record what there is (A47)."""
    manager = await opener(max_sessions=1, policy=SMALL)
    session = await manager.get_or_create("cli:busy")
    await filled_until_jump(session)
    last = session.head.last_seq
    async with session.lock:
        await manager.create_session("other")
        await manager.open("other")
        assert (await manager.store.read(session.session_id, backwards=True, limit=1))[0].seq == last
    await manager.create_session("another")
    await manager.open("another")
    assert (await manager.store.read(session.session_id, backwards=True, limit=1))[0].seq == last + 1


async def test_a_session_that_came_into_use_while_it_was_saved_stays(opener: Opener) -> None:
    """Whoever takes the lock while eviction saves a session keeps it in memory (A47)."""
    manager = await opener(max_sessions=1, policy=SMALL)
    store = manager.store = WatchedStore(manager.store)
    session = await manager.get_or_create("cli:a")
    await filled_until_jump(session)
    await manager.create_session("other")
    lock, reference = session.lock, weakref.ref(session)

    async def come() -> None:
        store.before_append = None
        await lock.acquire()

    store.before_append = come
    del session
    await manager.open("other")
    gc.collect()
    assert store.before_append is None
    assert reference() is not None
    await lock.release()


async def test_a_session_that_cannot_be_saved_stays_until_it_can(
    opener: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """While the disk is full the session keeps its place and a warning is logged; afterwards it is saved (A47, A66)."""
    manager = await opener(max_sessions=1, policy=SMALL)
    await manager.create_session("other")
    store = manager.store = FullStore(manager.store)
    session = await manager.get_or_create("cli:a")
    await filled_until_jump(session)
    session_id, jump, reference = session.session_id, session.history.unrecorded_jump, weakref.ref(session)
    del session
    store.full = True
    with caplog.at_level(logging.WARNING):
        await manager.open("other")
    gc.collect()
    kept = reference()
    assert kept is not None
    assert kept.history.unrecorded_jump == jump
    assert session_id in caplog.text
    store.full = False
    await manager.open("other")
    assert kept.history.unrecorded_jump is None
    (last,) = await (await manager.open(session_id)).get_recent_events(1)
    assert isinstance(last, NoteEvent)
    assert last.data == jump


async def test_closing_saves_every_session(opener: Opener) -> None:
    """What only memory held, a window jump, is in the log once the manager is closed (A47, A66, C9)."""
    manager = await opener(policy=SMALL)
    session = await manager.get_or_create("cli:a")
    await filled_until_jump(session)
    jump = session.history.unrecorded_jump
    await manager.close()
    (last,) = await (await (await opener()).open(session.session_id)).get_recent_events(1)
    assert isinstance(last, NoteEvent)
    assert last.data == jump


async def test_a_session_says_that_it_is_in_use(opener: Opener) -> None:
    """It is so while it is locked, waited for, appended to or followed, and else not (A37, A47)."""
    manager = await opener()
    store = manager.store = WatchedStore(manager.store)
    session = await manager.get_or_create("cli:a")
    assert not session.in_use
    follower = session.follow()
    await anext(follower)
    assert session.in_use
    await follower.aclose()
    assert not session.in_use
    seen: list[bool] = []

    async def look() -> None:
        seen.append(session.in_use)

    store.before_append = look
    await session.add_event(UserMessageEvent(content="hi"))
    assert seen == [True]
    await session.lock.acquire()
    waiter = asyncio.ensure_future(session.lock.acquire())
    await asyncio.sleep(0)
    await session.lock.release()
    # The lock is on its way from one holder to the next.
    assert session.in_use
    await waiter
    assert session.in_use
    await session.lock.release()
    assert not session.in_use


async def test_a_repeated_append_changes_no_memory(opener: Opener) -> None:
    """What was stored before is not applied again: head and window stay, and are those of a fresh look (C2, B31)."""
    session = await (await opener()).get_or_create("cli:a")
    once = await session.add_event(UserMessageEvent(content="once"), idempotency_key="k")
    await session.add_event(AgentMessageEvent(content="yes"))
    before = session.head
    assert await session.add_event(UserMessageEvent(content="once"), idempotency_key="k") == once
    assert session.head == before
    again = await (await opener()).open(session.session_id)
    assert again.head == session.head
    for one in (session, again):
        assert [message["content"] for message in await one.get_context_for_llm()] == ["once", "yes"]
