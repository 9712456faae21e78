"""Appends beside others' whose records cannot be read, and with a jump that has to be recorded first (B31, C16, A47)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.context.policy import WindowPolicy
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import UserMessageEvent
from kipu.manager.session import Session
from kipu.ports.store import Appended, StoredEvent
from kipu.stores.wrapper import WrappedStore
from kipu.wiring import open_manager
from tests.acceptance.manager.conftest import Opener

LONGEST_S = 60.0


class DamagedStore(WrappedStore):
    """A store that cannot read some of its records: it leaves them out, as every store does with what is damaged."""

    damaged: frozenset[int] = frozenset()

    async def read(self, *args: Any, **kwargs: Any) -> list[StoredEvent]:
        return [stored for stored in await super().read(*args, **kwargs) if stored.seq not in self.damaged]


async def test_an_append_behind_damage_goes_on(opener: Opener) -> None:
    """What another process wrote and nobody can read any more stops no append, and is no part of the history (C16)."""
    one, two = await opener(), await opener()
    store = DamagedStore(one.store)
    one.store = store
    session = await one.get_or_create("cli:p")
    theirs = await two.open(session.session_id)
    lost = [(await theirs.add_event(UserMessageEvent(content=f"lost {number}"))).seq for number in range(2)]
    kept = await theirs.add_event(UserMessageEvent(content="kept"))
    gone = await theirs.add_event(UserMessageEvent(content="gone"))
    store.damaged = frozenset([*lost, gone.seq])
    async with asyncio.timeout(LONGEST_S):
        mine = await session.add_event(UserMessageEvent(content="mine"))
        again = await session.add_event(UserMessageEvent(content="again"))
    assert [mine.seq, again.seq] == [gone.seq + 1, gone.seq + 2]
    assert session.head.last_seq == again.seq
    said = [message["content"] for message in await session.get_context_for_llm("openai_chat")]
    assert said == ["kept", "mine", "again"]
    seqs = [event.seq for event in await session.get_full_history()]
    assert seqs == [1, kept.seq, mine.seq, again.seq]


class SlowToAnswer(WrappedStore):
    """A store that takes a moment for each append, and for its first answer longer than for those of whoever asks behind it."""

    slow = False

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        slow, self.slow = self.slow, False
        await asyncio.sleep(0)
        appended = await super().append(*args, **kwargs)
        for _ in range(100 if slow else 1):
            await asyncio.sleep(0)
        return appended


async def with_jump(opener: Opener, *, slow: bool = False) -> Session:
    """Return a session whose window jumped, which nothing has recorded yet; the next append is `slow` to be answered."""
    manager = await opener(policy=WindowPolicy(max_messages=10))
    store = SlowToAnswer(manager.store)
    manager.store = store
    session = await manager.get_or_create("cli:p")
    number = 0
    while session.history.unrecorded_jump is None:
        number += 1
        await session.add_event(UserMessageEvent(content=f"{number}"))
        assert number < 20
    store.slow = slow
    return session


async def test_an_append_returns_its_own_events_and_no_record_of_a_jump(opener: Opener) -> None:
    """A jump that nothing has recorded is recorded by the next append, which gives back what was added, and that alone (A47)."""
    session = await with_jump(opener)
    batch = [UserMessageEvent(content="one"), UserMessageEvent(content="two")]
    stored = await session.add_events(batch)
    assert [event.content for event in stored if isinstance(event, UserMessageEvent)] == ["one", "two"]
    assert len(stored) == 2
    events = await session.get_full_history()
    assert isinstance(events[-3], NoteEvent)
    assert [event.seq for event in stored] == [event.seq for event in events[-2:]]


@pytest.mark.parametrize("saves", [True, False])
async def test_a_jump_is_recorded_once_whoever_records_it(opener: Opener, saves: bool) -> None:
    """Two tasks that append, or one that saves meanwhile, leave one record of a jump, before what they append (A47, B33)."""
    session = await with_jump(opener, slow=True)
    before = session.head.last_seq
    other = session.save() if saves else session.add_event(UserMessageEvent(content="other"))
    await asyncio.gather(session.add_event(UserMessageEvent(content="mine")), other)
    events = [event async for event in session.events(after=before)]
    kinds = [event.kind if isinstance(event, NoteEvent) else event.event_type for event in events]
    assert kinds == ["kipu.window", *["user_message"] * (1 if saves else 2)]
    assert [message["content"] for message in session.messages].count("mine") == 1
    assert session.history.unrecorded_jump is None


@pytest.mark.parametrize("by", ["close", "append", "expected"])
async def test_a_jump_that_others_went_back_behind_is_not_recorded(opener: Opener, by: str) -> None:
    """After a rewind elsewhere the window shows what it went back to, whatever a process does that had jumped before (C11, B33)."""
    policy = WindowPolicy(max_messages=10)
    one, two = await opener(policy=policy), await opener(policy=policy)
    session = await one.get_or_create("cli:p")
    theirs = await two.open(session.session_id)
    number = 0
    while theirs.history.unrecorded_jump is None:
        number += 1
        await theirs.add_event(UserMessageEvent(content=f"第{number}个问题"))
        assert number < 20
    await session.rewind(turns=number - 2)
    said = ["第1个问题", "第2个问题"]
    if by == "close":
        await theirs.save()
    else:
        last = session.head.last_seq if by == "expected" else None
        await theirs.add_event(UserMessageEvent(content="然后"), expected_seq=last)
        said.append("然后")
    again = await (await opener(policy=policy)).open(session.session_id)
    for each in (session, theirs, again):
        assert [message["content"] for message in await each.get_context_for_llm("openai_chat")] == said


async def test_a_jump_beside_damage_is_recorded_or_left_to_the_next(opener: Opener) -> None:
    """What another process wrote and nobody can read any more keeps nobody from saving or appending (C16, A47)."""
    manager = await opener(policy=WindowPolicy(max_messages=10))
    store = manager.store = DamagedStore(manager.store)
    session = await manager.get_or_create("cli:p")
    for number in range(20):
        if session.history.unrecorded_jump is None:
            await session.add_event(UserMessageEvent(content=f"{number}"))
    theirs = await (await opener()).open(session.session_id)
    store.damaged = frozenset([(await theirs.add_event(UserMessageEvent(content="lost"))).seq])
    async with asyncio.timeout(LONGEST_S):
        await session.save()
        added = await session.add_event(UserMessageEvent(content="mine"))
    assert (await session.get_recent_events(1)) == [added]
    assert session.history.unrecorded_jump is None


async def test_memory_takes_appends_in_the_order_of_the_log() -> None:
    """However late a store answers, no event is in memory twice, nor before one that was stored before it (B31, A74)."""
    async with await open_manager("memory://") as manager:
        store = SlowToAnswer(manager.store)
        manager.store = store
        session = await manager.get_or_create("cli:p")
        store.slow = True
        await asyncio.gather(*(session.add_event(UserMessageEvent(content=f"{number}")) for number in range(3)))
        shown = [message["content"] for message in await session.get_context_for_llm("openai_chat")]
        assert shown == ["0", "1", "2"]
        assert (session.head.last_seq, session.head.event_count) == (4, 4)


async def test_appends_of_many_tasks_are_seen_in_the_order_they_were_stored(opener: Opener) -> None:
    """Whoever of them comes first: memory, window and log have one order, and nothing twice (B31, A74)."""
    one, two = await opener(), await opener()
    session = await one.get_or_create("cli:p")
    theirs = await two.open(session.session_id)

    async def say(number: int) -> None:
        mine = session if number % 3 else theirs
        await mine.add_event(UserMessageEvent(content=f"{number}"))

    await asyncio.gather(*(say(number) for number in range(30)))
    for each in (session, theirs):
        shown = [message["content"] for message in await each.get_context_for_llm("openai_chat")]
        events = await each.get_full_history()
        assert shown == [event.content for event in events if isinstance(event, UserMessageEvent)]
        assert [event.seq for event in events] == list(range(1, 32))
        assert each.head.event_count == 31
