"""What a fork or a rewind takes along of window, pins, memory and mailbox (C11, B36, A29)."""

from __future__ import annotations

import asyncio

import pytest

from kipu.errors import InputError
from kipu.events.boundary import ConsolidationEvent
from kipu.events.conversation import AgentMessageEvent, InstructionEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_window_of_session import SMALL, exchange, shown


async def long_talk(session: Session) -> None:
    """Add exchanges until the window has left the first ones behind."""
    for number in range(25):
        await exchange(session, number)
    assert session.head.window_seq > 20


async def test_a_branch_from_before_the_window_shows_what_stood_there(opener: Opener) -> None:
    """A fork or a rewind to a point that the window had left behind starts where the window was then (C11, C7)."""
    first = await opener(policy=SMALL)
    session = await first.get_or_create("cli:p")
    await long_talk(session)
    fork = await session.fork(5)
    await session.rewind(5)
    assert (fork.head.window_seq, session.head.window_seq) == (0, 0)
    second = await opener(policy=SMALL)
    for one in (fork, session, await second.open(fork.session_id), await second.open(session.session_id)):
        roles = [message["role"] for message in await shown(one)]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert "question 0" in str(await shown(one))


async def test_a_branch_takes_the_pins_of_its_past(opener: Opener) -> None:
    """A fork has the pins up to its point and no later ones, and shows them when their time has passed (C11, B36)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    await exchange(session, 0)
    await exchange(session, 1)
    await session.pin(4, 8)
    assert (await session.fork(5)).head.pins == (4,)
    fork = await session.fork()
    assert fork.head.pins == (4, 8)
    for number in range(2, 25):
        await exchange(fork, number)
    again = await (await opener(policy=SMALL)).open(fork.session_id)
    for one in (fork, again):
        assert "'n': 0}" in str(await shown(one))


async def test_a_fork_knows_what_its_parent_had_undone(manager: SessionManager) -> None:
    """A fork goes back to nothing that was undone in what it shares, as its parent does not, and where it stood it may (C11)."""
    session = await manager.get_or_create("cli:p")
    for number in range(3):
        await exchange(session, number)
    await session.rewind(5)
    await exchange(session, 3)
    before, after = await session.fork(9), await session.fork()
    for one in (session, after):
        with pytest.raises(InputError, match="undone already"):
            await one.rewind(9)
    await before.add_event(UserMessageEvent(content="another way"))
    await before.rewind(9)
    assert "question 1" in str(await shown(before))
    assert "question 1" not in str(await shown(after))


async def test_a_branch_from_before_the_memory_boundary_has_its_history(manager: SessionManager) -> None:
    """Memory's boundary moves back with the tip, so that no history is left out that memory took from later ones (C11, A29)."""
    session = await manager.get_or_create("cli:p")
    for number in range(4):
        await exchange(session, number)
    await session.add_event(ConsolidationEvent(to_seq=13, memory_ids=["m"]))
    fork = await session.fork(5)
    assert fork.last_consolidated == 5
    await fork.add_event(UserMessageEvent(content="and?"))
    assert [message["content"] for message in await fork.get_history()] == ["and?"]
    await session.rewind(9)
    assert session.last_consolidated == 9
    await exchange(session, 9)
    assert (await session.get_history())[0]["content"] == "question 9"


async def test_a_fork_from_before_its_parents_own_beginning_sees_no_more(manager: SessionManager) -> None:
    """A fork of a fork, at a point that the grandparent holds, shows the grandparent up to there and then itself (C11)."""
    session = await manager.get_or_create("cli:p")
    for number in range(3):
        await exchange(session, number)
    child = await session.fork(9)
    await child.add_event(UserMessageEvent(content="child"))
    grandchild = await child.fork(5)
    await grandchild.add_event(UserMessageEvent(content="grandchild"))
    said = [message["content"] for message in await grandchild.get_history() if message["role"] == "user"]
    assert said == ["question 0", "grandchild"]
    events = await grandchild.get_full_history()
    assert [event.seq for event in events] == list(range(1, 8))
    assert [event.event_type for event in events[5:]] == ["session_init", "user_message"]


async def test_following_a_fork_begins_with_the_shared_events(manager: SessionManager) -> None:
    """Who follows a fork from the beginning sees the parent's events up to the fork, then the fork's own (C11, A9)."""
    session = await manager.get_or_create("cli:p")
    await exchange(session, 0)
    fork = await session.fork(3)
    await fork.add_event(UserMessageEvent(content="on"))
    seen = []
    async with asyncio.timeout(60):
        async for event in fork.follow():
            seen.append(event.event_type)
            if len(seen) == 5:
                break
    assert seen == ["session_init", "user_message", "tool_call", "session_init", "user_message"]


async def test_a_rewind_is_refused_while_a_turn_is_open(manager: SessionManager) -> None:
    """A turn that runs would go on from what is gone: it must be ended first (C11, A39)."""
    session = await manager.get_or_create("cli:p")
    await exchange(session, 0)
    with pytest.raises(InputError, match="still open"):
        async with session.turn():
            await session.rewind()
    assert session.head.rewind_seq == 0
    await session.rewind()
    assert session.head.rewind_seq > 0


async def test_a_message_that_arrived_in_an_undone_turn_is_told_once_it_is_consumed(opener: Opener) -> None:
    """It waits over the rewind, and then stands in window, messages and plain history, also after a restart (C11, A1, A29)."""
    first = await opener()
    session = await first.get_or_create("cli:p")
    await first.receive("cli:p", UserMessageEvent(content="one"))
    async with session.turn(take=1) as turn:
        await first.receive("cli:p", UserMessageEvent(content="two"))
        await turn.add_event(AgentMessageEvent(content="answer"))
    await session.rewind()
    assert session.messages == []
    assert await session.get_history() == []
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="to two"))
    again = await (await opener()).open(session.session_id)
    for one in (session, again):
        assert [message["content"] for message in await one.get_context_for_llm()] == ["two", "to two"]
        assert [message["content"] for message in await one.get_history()] == ["two", "to two"]
        assert [message["content"] for message in one.messages] == ["two", "to two"]


async def test_a_fork_from_a_point_that_was_undone_has_its_instruction(manager: SessionManager) -> None:
    """Where the way back was forgotten with a rewind, a fork still begins with the instruction that was in effect (C11)."""
    session = await manager.get_or_create("cli:p")
    await exchange(session, 0)
    await session.add_event(InstructionEvent(content="be brief"))
    await exchange(session, 1)
    point = session.history.last_seq
    await session.rewind(5)
    await exchange(session, 2)
    fork = await session.fork(point)
    assert "be brief" in str(await shown(fork))
    assert "question 1" in str(await shown(fork))
    assert "be brief" not in str(await shown(await session.fork()))
