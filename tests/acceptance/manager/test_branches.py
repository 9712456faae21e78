"""Forks and rewinds, as the model then sees the history."""

from __future__ import annotations

import pytest

from kipu.errors import InputError
from kipu.events.boundary import CompactionEvent, RewindEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.testing.validators import validate
from tests.acceptance.manager.conftest import Opener


async def say(session: Session, *texts: str) -> None:
    """Add questions and answers in turn."""
    for text in texts:
        kind = UserMessageEvent if text.startswith("q") else AgentMessageEvent
        await session.add_event(kind(content=text))


async def shown(session: Session) -> list[str]:
    """Return what the model sees, as texts."""
    return [str(message["content"]) for message in await session.get_context_for_llm()]


async def test_a_fork_shares_the_past_and_goes_its_own_way(opener: Opener) -> None:
    """A fork sees the parent's events up to its point, each then goes on alone, also after a restart (C11)."""
    first = await opener()
    parent = await first.get_or_create("cli:p")
    await say(parent, "q1", "a1", "q2", "a2")
    fork = await parent.fork(3)
    await say(fork, "q3", "a3")
    await say(parent, "q4")
    assert await shown(parent) == ["q1", "a1", "q2", "a2", "q4"]
    assert await shown(fork) == ["q1", "a1", "q3", "a3"]
    await first.close()
    again = await (await opener()).open(fork.session_id)
    assert await shown(again) == ["q1", "a1", "q3", "a3"]
    assert [event.seq for event in await again.get_full_history()] == [1, 2, 3, 4, 5, 6]
    assert await again.get_history() == [
        message for message in again.messages if message["content"] in ("q1", "a1", "q3", "a3")
    ]


async def test_a_fork_of_a_fork_sees_the_whole_lineage(manager: SessionManager) -> None:
    """Lineages of any depth read as one history, also forked before an earlier fork point (C11)."""
    session = await manager.get_or_create("cli:p")
    await say(session, "q0", "a0")
    expected = ["q0", "a0"]
    for depth in range(1, 6):
        session = await session.fork()
        await say(session, f"q{depth}", f"a{depth}")
        expected += [f"q{depth}", f"a{depth}"]
    assert await shown(session) == expected
    early = await session.fork(3)
    await say(early, "q-early")
    assert await shown(early) == ["q0", "a0", "q-early"]
    assert [event.seq for event in await early.get_recent_events(3)] == [3, 4, 5]


async def test_a_fork_stores_no_copies(opener: Opener) -> None:
    """A fork's own log has its own events only (C11, situation 53)."""
    manager = await opener()
    parent = await manager.get_or_create("cli:p")
    await say(parent, *["q", "a"] * 50)
    fork = await parent.fork()
    own = await manager.store.read(fork.session_id)
    assert [stored.record.event_type for stored in own] == ["session_init"]
    assert own[0].seq == 102


async def test_a_fork_between_call_and_result_shows_a_valid_history(manager: SessionManager) -> None:
    """Forked in the middle of a call, the child's window is one that providers accept (A2, C7, situation 32)."""
    session = await manager.get_or_create("cli:p")
    await say(session, "q1")
    await session.add_event(ToolCallEvent(tool_name="t", tool_call_id="c1"))
    await session.add_event(ToolResultEvent(tool_call_id="c1", result="ok"))
    fork = await session.fork(3)
    await say(fork, "q2")
    for target in ("openai_chat", "anthropic", "gemini", "openai_responses"):
        rendering = await fork.render(target)
        assert validate(target, rendering.payload) == []
    assert [adjustment.kind for adjustment in (await fork.render()).adjustments] == ["call_closed"]


@pytest.mark.parametrize("seq", [0, -1, 99])
async def test_a_fork_point_that_does_not_exist_is_refused(manager: SessionManager, seq: int) -> None:
    """There is no fork at an event that is not there; the error says which event that is, not that a session is missing (C11)."""
    session = await manager.get_or_create("cli:p")
    with pytest.raises(InputError, match=f"no event {seq} to fork at; its last one is 1"):
        await session.fork(seq)


async def test_a_rewind_is_an_event_and_the_log_keeps_all(opener: Opener) -> None:
    """After going back the model no longer sees what was undone, the log still has it, also after a restart (A26, C11)."""
    first = await opener()
    session = await first.get_or_create("cli:p")
    await say(session, "q1", "a1", "q2", "a2")
    rewind = await session.rewind()
    assert isinstance(rewind, RewindEvent)
    assert rewind.to_seq == 3
    await say(session, "q3")
    assert await shown(session) == ["q1", "a1", "q3"]
    await first.close()
    again = await (await opener()).open(session.session_id)
    assert await shown(again) == ["q1", "a1", "q3"]
    assert len(await again.get_full_history()) == 7
    assert [message["content"] for message in await again.get_history()] == ["q1", "a1", "q3"]
    await again.rewind(turns=2)
    assert await shown(again) == []


async def test_a_rewind_only_goes_to_turn_boundaries(manager: SessionManager) -> None:
    """Inside a turn, before its results, or in what was undone already there is no way back to (C11)."""
    session = await manager.get_or_create("cli:p")
    await say(session, "q1", "a1", "q2")
    await session.add_event(ToolCallEvent(tool_name="t", tool_call_id="c1"))
    await session.add_event(ToolResultEvent(tool_call_id="c1", result="ok"))
    await say(session, "a2", "q3")
    with pytest.raises(InputError):
        await session.rewind(5)
    with pytest.raises(InputError):
        await session.rewind(turns=9)
    with pytest.raises(InputError):
        await session.rewind(99)
    await session.rewind(3)
    with pytest.raises(InputError):
        await session.rewind(6)
    assert await shown(session) == ["q1", "a1"]


async def test_a_rewind_settles_the_messages_whose_turns_it_undoes(manager: SessionManager) -> None:
    """A consumed message whose turn is undone is settled, and one that still waits is left alone (C11)."""
    session = await manager.get_or_create("cli:p")
    await manager.receive("cli:p", UserMessageEvent(content="q1"))
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="a1"))
    await manager.receive("cli:p", UserMessageEvent(content="later"))
    await session.rewind()
    (settled,) = [event for event in await session.get_full_history() if event.event_type == "message_settled"]
    assert settled.model_dump()["seqs"] == [2]
    assert await shown(session) == []
    async with session.turn() as turn:
        assert await shown(session) == ["later"]


async def test_instruction_and_summary_follow_the_branch(opener: Opener) -> None:
    """Rewind and fork show the instruction and the summary that were in force at that point (B36, C11)."""
    first = await opener()
    session = await first.get_or_create("cli:p")
    await session.add_event(InstructionEvent(content="be kind"))
    await say(session, "q1", "a1")
    await session.add_event(InstructionEvent(content="be brief"))
    await session.add_event(CompactionEvent(from_seq=1, to_seq=4, summary="they met", first_kept_seq=5))
    await say(session, "q2", "a2")
    assert "be brief" in str(await session.get_context_for_llm())
    early = await session.fork(4)
    assert "be kind" in str(await early.get_context_for_llm())
    assert "be brief" not in str(await early.get_context_for_llm())
    await session.rewind(4)
    await say(session, "q3")
    await first.close()
    again = await (await opener()).open(session.session_id)
    context = str(await again.get_context_for_llm())
    assert "be kind" in context
    assert "be brief" not in context
    assert "they met" not in context


async def test_rounds_of_fork_rewind_and_compaction_grow_linearly(opener: Opener) -> None:
    """Growth per round is what the round adds, however long the history is by then (C11, situation 53)."""
    manager = await opener()
    session = await manager.get_or_create("cli:p")
    counts: list[int] = []
    for number in range(30):
        await say(session, f"q{number}", f"a{number}")
        last = session.head.last_seq
        await session.add_event(CompactionEvent(from_seq=1, to_seq=last - 2, summary="s", first_kept_seq=last - 1))
        await say(session, "q-undone")
        await session.rewind()
        session = await session.fork()
        counts.append(len(await manager.store.read(session.session_id)))
    assert set(counts) == {1}
    assert await shown(session)
