"""Where a rewind may lead, and what it says of the messages whose turns it undoes (C11, C12)."""

from __future__ import annotations

import pytest

from kipu.errors import InputError
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.turn import MessageSettledEvent, TurnSteeredEvent
from kipu.manager.manager import SessionManager
from tests.acceptance.manager.conftest import Opener


async def test_a_rewind_leads_to_no_point_between_two_answers_of_a_turn(manager: SessionManager) -> None:
    """A turn is undone whole or not at all, also where no call is open in it at that point (C11, A2)."""
    session = await manager.get_or_create("cli:p")
    await manager.receive("cli:p", UserMessageEvent(content="do it"))
    async with session.turn() as turn:
        first = await turn.add_event(AgentMessageEvent(content="first"))
        await turn.add_event(AgentMessageEvent(content="second"))
    ended = session.head.last_seq
    await session.add_event(UserMessageEvent(content="next"))
    with pytest.raises(InputError):
        await session.rewind(first.seq)
    await session.rewind(ended)
    said = [message["content"] for message in await session.get_context_for_llm("openai_chat")]
    assert "second" in said[-1]


async def test_a_message_that_joined_an_undone_turn_gets_no_answer_either(manager: SessionManager) -> None:
    """Undoing a turn settles every message that it took, whenever it took it: none of them waits for ever unseen (C12)."""
    session = await manager.get_or_create("cli:p")
    began = (await manager.receive("cli:p", UserMessageEvent(content="do it"))).first_seq
    async with session.turn() as turn:
        joined = (await manager.receive("cli:p", UserMessageEvent(content="and that"))).first_seq
        await turn.add_event(TurnSteeredEvent(turn_id=turn.id, consumes=[joined]))
        await turn.add_event(AgentMessageEvent(content="done"))
    await session.rewind(turns=1)
    (last,) = await session.get_recent_events(1)
    assert isinstance(last, MessageSettledEvent)
    assert (last.seqs, last.reason) == ([began, joined], "superseded")
    assert session.head.waiting == ()


async def test_a_rewind_takes_back_what_another_process_said_last(opener: Opener) -> None:
    """The last turn is the log's, not what this process has read of it; one that is open there is not undone (C11, C1)."""
    one, two = await opener(), await opener()
    session = await one.get_or_create("cli:p")
    await session.add_event(UserMessageEvent(content="mine"))
    theirs = await two.open(session.session_id)
    await theirs.add_event(UserMessageEvent(content="theirs"))
    await session.rewind(turns=1)
    said = [message["content"] for message in await session.get_context_for_llm("openai_chat")]
    assert said == ["mine"]
    async with theirs.turn() as turn:
        turn.leave_open()
    with pytest.raises(InputError, match=turn.id):
        await session.rewind(turns=1)
