"""What was pinned stays in the window as it was pinned: its exchange, all of it, and nothing else (B36, B33)."""

from __future__ import annotations

import pytest

from kipu.context.policy import WindowPolicy
from kipu.events.boundary import EventPinnedEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.manager.session import Session
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_window_of_session import exchange, shown

POLICY = WindowPolicy(max_tokens=100_000, max_messages=24)


async def work(session: Session, *, calls: int) -> list[int]:
    """Let a turn make calls without a word between, the first two results around a steering message; return the calls' seqs."""
    await session.add_event(UserMessageEvent(content="work"))
    seqs = []
    async with session.turn() as turn:
        for number in range(calls):
            call = await turn.add_event(ToolCallEvent(tool_name="read", tool_call_id=f"w{number}", tool_input={}))
            if number == 1:
                await session.add_event(UserMessageEvent(content="not so fast"))
            await turn.add_event(ToolResultEvent(tool_call_id=f"w{number}", result=f"result {number}"))
            seqs.append(call.seq)
        await turn.add_event(AgentMessageEvent(content="worked"))
    return seqs


@pytest.mark.parametrize("behind_its_call", [0, 2])
async def test_a_pin_keeps_one_exchange_of_a_turn_after_a_restart(opener: Opener, behind_its_call: int) -> None:
    """Neither the turn's other calls nor its messages come with it, and a result behind a message does (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    second = (await work(session, calls=6))[1]
    await session.pin(second + behind_its_call)
    for number in range(12):
        await exchange(session, number)
    assert session.history.window.start_seq > second + 12
    live = await shown(session)
    assert "result 1" in str(live)
    assert "result 0" not in str(live)
    again = await (await opener(policy=POLICY)).open(session.session_id)
    assert await shown(again) == live


@pytest.mark.parametrize("behind_its_call", [0, 2])
async def test_a_pin_of_what_left_the_window_brings_its_whole_exchange(opener: Opener, behind_its_call: int) -> None:
    """A call or a result that is pinned when the window is past it is shown with what belongs to it, at once (B36, A2)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    second = (await work(session, calls=6))[1]
    for number in range(12):
        await exchange(session, number)
    assert session.history.window.start_seq > second + 12
    await session.pin(second + behind_its_call)
    live = await shown(session)
    assert "w1" in str(live)
    assert "result 1" in str(live)
    assert "result 0" not in str(live)
    await session.add_event(UserMessageEvent(content="on"))
    again = await (await opener(policy=POLICY)).open(session.session_id)
    assert await shown(again) == await shown(session)


async def test_what_was_undone_is_not_shown_for_being_pinned(opener: Opener) -> None:
    """A rewind takes a pinned message back for good: no restart and no fork shows it again (C11, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await exchange(session, 0)
    secret = await session.add_event(UserMessageEvent(content="take that back"))
    await session.add_event(AgentMessageEvent(content="a slip"))
    await session.pin(secret.seq)
    await session.rewind()
    for number in range(1, 12):
        await exchange(session, number)
    assert session.head.window_seq > secret.seq
    for one in (session, await session.fork()):
        again = await (await opener(policy=POLICY)).open(one.session_id)
        for shows in (one, again):
            assert "take that back" not in str(await shown(shows))
            assert await shown(shows) == await shown(session)


async def test_a_pinned_greeting_stays_too(opener: Opener) -> None:
    """An answer that stands before any user message is in no window until it jumps; pinned, it is in those that follow (B36, A32)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    greeting = await session.add_event(AgentMessageEvent(content="good morning"))
    await session.pin(greeting.seq)
    for number in range(12):
        await exchange(session, number)
    live = await shown(session)
    assert "good morning" in str(live)
    assert await shown(await (await opener(policy=POLICY)).open(session.session_id)) == live


async def test_a_message_that_a_jump_kept_is_not_pinned_by_another_pin(opener: Opener) -> None:
    """A question that stands before the window for its turn's sake goes when its turn has gone, whatever was pinned then (B36)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    first = (await work(session, calls=2))[0]
    await session.add_event(UserMessageEvent(content="a long piece of work"))
    async with session.turn() as turn:
        for number in range(20):
            await turn.add_event(ToolCallEvent(tool_name="read", tool_call_id=f"l{number}", tool_input={}))
            await turn.add_event(ToolResultEvent(tool_call_id=f"l{number}", result="x"))
    assert (await shown(session))[0]["content"][0]["text"] == "a long piece of work"
    await session.pin(first)
    for number in range(12):
        await exchange(session, number)
    live = await shown(session)
    assert "a long piece of work" not in str(live)
    assert await shown(await (await opener(policy=POLICY)).open(session.session_id)) == live


async def test_a_pinned_question_that_a_jump_kept_leads_the_window_after_a_restart(opener: Opener) -> None:
    """In a turn longer than the window the question stays before it; pinned as well, its answers stay behind it (B33, A33, B36)."""
    policy = WindowPolicy(max_tokens=100_000, max_messages=4, low_water=1.0)
    session = await (await opener(policy=policy)).get_or_create("cli:p")
    question = await session.add_event(UserMessageEvent(content="the question"))
    for number in range(3):
        await session.add_event(ToolCallEvent(tool_name="read", tool_call_id=f"w{number}", tool_input={}))
        await session.add_event(ToolResultEvent(tool_call_id=f"w{number}", result=f"result {number}"))
    await session.pin(question.seq)
    assert session.history.window.start_seq > question.seq
    await session.add_event(UserMessageEvent(content="and now?"))
    live = await shown(session)
    assert "the question" in str(live)
    assert "result 2" in str(live)
    again = await (await opener(policy=policy)).open(session.session_id)
    assert await shown(again) == live


async def test_a_pin_taken_back_and_given_again_at_once_holds_after_a_restart(opener: Opener) -> None:
    """Of what one append says of a pin the last counts, for the window here and for whoever opens the session (B33, B36, C2)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    asked = await session.add_event(UserMessageEvent(content="keep this"))
    await session.pin(asked.seq)
    await session.add_events([EventPinnedEvent(seqs=[asked.seq], on=False), EventPinnedEvent(seqs=[asked.seq])])
    for number in range(14):
        await exchange(session, number)
    live = await shown(session)
    assert "keep this" in str(live)
    again = await (await opener(policy=POLICY)).open(session.session_id)
    assert again.head.pins == (asked.seq,)
    assert await shown(again) == live
