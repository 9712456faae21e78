"""Where a fork begins and a rewind ends when others write, turns take nothing, or nobody has spoken yet (C11, B37)."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.errors import InputError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.manager.session import Session
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_window_of_session import exchange, shown


async def said(session: Session) -> str:
    """Return what the model is shown, as one text."""
    return str(await shown(session))


async def test_a_rewind_takes_a_turn_back_with_the_message_that_it_answered(opener: Opener) -> None:
    """A turn that consumed nothing answers what was said before it: that message goes with it (C11)."""
    session = await (await opener()).get_or_create("cli:p")
    await exchange(session, 0)
    await session.add_event(UserMessageEvent(content="a slip"))
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="as you wish"))
    await session.rewind()
    assert "a slip" not in await said(session)
    assert "answer 0" in await said(session)


async def test_a_message_that_a_turn_said_itself_begins_no_turn(opener: Opener) -> None:
    """What stands inside a turn is no place to go back to: one turn back is before what began it (C11)."""
    session = await (await opener()).get_or_create("cli:p")
    await exchange(session, 0)
    await session.add_event(UserMessageEvent(content="the question"))
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="first"))
        await turn.add_event(UserMessageEvent(content="a reminder of the program"))
        await turn.add_event(AgentMessageEvent(content="second"))
    await session.rewind()
    assert "the question" not in await said(session)
    assert "answer 0" in await said(session)


async def test_a_rewind_parts_no_answer_from_its_calls(opener: Opener) -> None:
    """Between a text and the calls that belong to it is no boundary, also where no turn was begun (C11, A2)."""
    session = await (await opener()).get_or_create("cli:p")
    await session.add_event(UserMessageEvent(content="go"))
    text = await session.add_event(AgentMessageEvent(content="I will look"))
    await session.add_event(ToolCallEvent(tool_name="read", tool_call_id="c", tool_input={}))
    await session.add_event(ToolResultEvent(tool_call_id="c", result="alpha"))
    with pytest.raises(InputError):
        await session.rewind(to_seq=text.seq)


async def test_a_fork_shares_what_another_process_has_just_said(opener: Opener) -> None:
    """A fork of everything is of everything that is stored, not of what this process has read (C11)."""
    here = await (await opener()).get_or_create("cli:p")
    await exchange(here, 0)
    there = await (await opener()).open(here.session_id)
    await exchange(there, 1)
    assert "answer 1" in await said(await here.fork())


async def test_a_fork_is_named_after_nothing_that_came_later(opener: Opener) -> None:
    """Its first text and its title are from what it shares: none where nobody had spoken, the first one however late (C11, B37)."""
    session = await (await opener()).get_or_create("cli:p")
    notes: list[SessionEvent] = [NoteEvent(kind="test.note", data={"number": number}) for number in range(40)]
    await session.add_events(notes)
    before = session.history.last_seq
    await session.add_event(UserMessageEvent(content="the secret plan"))
    await session.set_metadata(topic="login")
    early, late = await session.fork(before), await session.fork()
    assert early.head.first_text is None
    assert "secret" not in early.title
    assert late.head.first_text == "the secret plan"
    assert late.title.startswith("the secret plan")
    assert late.head.metadata["topic"] == "login"


async def test_all_that_another_process_said_is_read_however_much_it_is(opener: Opener) -> None:
    """A session that is open here shows what was appended elsewhere, over many pages, with its next window (A46, C3)."""
    here = await (await opener()).get_or_create("cli:p")
    there = await (await opener()).open(here.session_id)
    many: list[SessionEvent] = [NoteEvent(kind="test.note", data={"number": number}) for number in range(700)]
    await there.add_events(many)
    await there.add_event(UserMessageEvent(content="the newest"))
    assert "the newest" in await said(here)
    assert here.history.last_seq == there.history.last_seq


async def test_a_message_wakes_a_session_that_another_process_has_just_put_aside(opener: Opener) -> None:
    """Use makes a session active again, also where this process had not read yet that it was expired (A54, A56)."""
    here = await (await opener()).get_or_create("cli:p")
    await exchange(here, 0)
    there = await (await opener()).open(here.session_id)
    await there.set_status("expired")
    await here.add_event(UserMessageEvent(content="I am back"))
    head = await (await opener()).store.head(here.session_id)
    assert head is not None
    assert head.status == "active"


async def test_what_an_older_rewind_undid_is_no_place_to_go_back_to(opener: Opener) -> None:
    """However often the tip was moved since, a point that was undone stays undone (C11)."""
    session = await (await opener()).get_or_create("cli:p")
    await exchange(session, 0)
    await exchange(session, 1)
    undone = session.head.last_seq
    await session.rewind()
    await exchange(session, 2)
    await exchange(session, 3)
    await session.rewind()
    with pytest.raises(InputError, match="undone already"):
        await session.rewind(undone)
    assert "answer 2" in await said(session)


async def test_a_fork_has_the_title_it_is_given_and_works_where_its_parent_does(opener: Opener) -> None:
    """A given title is the fork's; its directory is recorded with it, as its settings are (B37, B43)."""
    manager = await opener()
    session = await manager.get_or_create("cli:p")
    await session.set_metadata(title="父", topic="files")
    placed: dict[str, Any] = {"kipu.workspace": {"root": "/work/项目"}}
    await session.set_metadata(**placed)
    child = await session.fork(title="子")
    assert child.title == "子"
    assert child.head.workspace == {"root": "/work/项目"}
    assert child.head.metadata["topic"] == "files"
