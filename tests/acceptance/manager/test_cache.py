"""The memory of live sessions: bounded, saved before eviction, never two objects for one session."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref

import pytest

from kipu.context.policy import WindowPolicy
from kipu.errors import StoreClosedError, StoreFullError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.manager.session import Session
from kipu.ports.store import Appended
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.manager.conftest import Opener

SMALL = WindowPolicy(max_tokens=400, max_messages=500)


async def filled_until_jump(session: Session) -> None:
    """Add messages until the window has jumped and no append has recorded it yet."""
    for number in range(200):
        await session.add_event(UserMessageEvent(content=f"question {number} " + "word " * 20))
        if session.history.unrecorded_jump is not None:
            return
    pytest.fail("the window never jumped")


async def test_idle_sessions_leave_memory_and_come_back(opener: Opener) -> None:
    """At most max_sessions are kept; one that left comes back whole (A45, B45)."""
    manager = await opener(max_sessions=3)
    ids = [(await manager.get_or_create(f"cli:{number}")).session_id for number in range(10)]
    for session_id in ids:
        await (await manager.open(session_id)).add_event(UserMessageEvent(content=session_id))
    first = weakref.ref(await manager.open(ids[0]))
    for session_id in ids[1:]:
        await manager.open(session_id)
    for _ in range(10):  # what the loop still holds of finished tasks goes with its next turns
        await asyncio.sleep(0)
        gc.collect()
    assert first() is None
    again = await manager.open(ids[0])
    assert [message["content"] for message in again.messages] == [ids[0]]


async def test_an_evicted_session_that_somebody_holds_is_found_again(opener: Opener) -> None:
    """However small the cache, there is never a second object beside one that is held (A45)."""
    manager = await opener(max_sessions=1)
    held = await manager.get_or_create("cli:held")
    for number in range(5):
        await manager.get_or_create(f"cli:{number}")
    assert await manager.get_or_create("cli:held") is held


async def test_a_session_in_use_is_not_evicted(opener: Opener) -> None:
    """One whose lock is held stays, however old (A47)."""
    manager = await opener(max_sessions=1)
    session = await manager.get_or_create("cli:busy")
    reference = weakref.ref(session)
    lock = session.lock
    await lock.acquire()
    del session
    for number in range(5):
        await manager.get_or_create(f"cli:{number}")
    gc.collect()
    assert reference() is not None
    await lock.release()


async def test_a_session_is_saved_before_it_is_evicted(opener: Opener) -> None:
    """What only memory held, a window jump, is in the log when the session has left memory (A47, A66, C9)."""
    manager = await opener(max_sessions=1, policy=SMALL)
    session = await manager.get_or_create("cli:a")
    await filled_until_jump(session)
    jump = session.history.unrecorded_jump
    await manager.get_or_create("cli:b")
    last = (await session.get_recent_events(1))[0]
    assert isinstance(last, NoteEvent)
    assert last.data == jump


class FullStore(WrappedStore):
    """A store whose disk can be full."""

    full = False

    async def append(self, *args: object, **kwargs: object) -> Appended:
        if self.full:
            raise StoreFullError(store="test", reason="no space left")
        return await super().append(*args, **kwargs)  # type: ignore[arg-type]


async def test_a_failed_save_keeps_the_session_and_the_old_state(
    opener: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """A session that cannot be saved is not dropped, and a failed append leaves memory and disk equal (A47, A52, A66, B31)."""
    manager = await opener(max_sessions=1, policy=SMALL)
    store = FullStore(manager.store)
    manager.store = store
    session = await manager.get_or_create("cli:a")
    await filled_until_jump(session)
    before = await session.get_context_for_llm()
    count = len(await session.get_full_history())
    store.full = True
    with caplog.at_level(logging.WARNING):
        other = await manager.open((await manager.get_or_create("cli:a")).session_id)
        with pytest.raises(StoreFullError):
            await manager.create_session()
        with pytest.raises(StoreFullError):
            await session.add_event(AgentMessageEvent(content="lost?"))
    assert other is session
    assert await session.get_context_for_llm() == before
    assert len(await session.get_full_history()) == count
    store.full = False
    stored = await session.add_event(AgentMessageEvent(content="not lost"))
    assert (await session.get_full_history())[-1] == stored


async def test_what_others_append_is_taken_in(opener: Opener) -> None:
    """Two processes on one session see each other's events in the store's order (A74, C1)."""
    one, two = await opener(), await opener()
    mine, theirs = await one.get_or_create("cli:p"), await two.get_or_create("cli:p")
    for number in range(5):
        await mine.add_event(UserMessageEvent(content=f"mine {number}"))
        await theirs.add_event(AgentMessageEvent(content=f"theirs {number}"))
    expected = [f"{who} {number}" for number in range(5) for who in ("mine", "theirs")]
    for session in (mine, theirs):
        assert [message["content"] for message in await session.get_context_for_llm()] == expected
        assert session.head.event_count == 11


async def test_unreadable_is_not_absent(opener: Opener) -> None:
    """When the store cannot be read, that is an error, never a missing or empty session (A50)."""
    manager = await opener()
    session_id = (await manager.get_or_create("cli:p")).session_id
    await manager.close()
    with pytest.raises(StoreClosedError) as caught:
        await manager.get_session(session_id + "x")
    assert caught.value.code == "store_closed"


async def test_many_tasks_that_open_sessions_at_once_each_get_theirs(opener: Opener) -> None:
    """While one saves what is to leave memory another lets go of it: nobody fails for that (A45, A47)."""
    manager = await opener(max_sessions=8, policy=SMALL)
    jumped = [await manager.get_or_create(f"cli:{number}") for number in range(8)]
    for session in jumped:
        await filled_until_jump(session)
    fresh = [await manager.create_session() for _ in range(8)]
    opened = await asyncio.gather(*[manager.open(session_id) for session_id in fresh])
    assert [session.session_id for session in opened] == fresh
    for session in jumped:
        assert isinstance((await session.get_recent_events(1))[0], NoteEvent)


async def test_closing_closes_the_store_whatever_cannot_be_saved(opener: Opener) -> None:
    """A session that was erased elsewhere, or a full disk, keeps no store open behind a manager that closes (B49, A47)."""
    for fault in ("erased", "full"):
        manager, other = await opener(policy=SMALL), await opener()
        store = manager.store = FullStore(manager.store)
        session = await manager.get_or_create("cli:a")
        kept = await manager.get_or_create("cli:b")
        await filled_until_jump(session)
        await filled_until_jump(kept)
        if fault == "erased":
            await other.delete_session(session.session_id)
        store.full = fault == "full"
        await manager.close()
        with pytest.raises(StoreClosedError):
            await manager.store.head(kept.session_id)
        if fault == "erased":
            last = (await (await other.open(kept.session_id)).get_recent_events(1))[0]
            assert isinstance(last, NoteEvent)
            await other.delete_session(kept.session_id)
