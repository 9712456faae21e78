"""What was pinned stays in the window as it was pinned: its exchange, all of it, and nothing else (B36, B33)."""

from __future__ import annotations

import pytest

from kipu.context.digest import replay as replay_items
from kipu.context.item import Item
from kipu.context.policy import WindowPolicy
from kipu.events.boundary import CompactionEvent, EventPinnedEvent, NoteEvent
from kipu.events.conversation import AgentMessageEvent, ModelCallEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import MessageSettledEvent, TurnSteeredEvent
from kipu.manager.session import Session
from kipu.runtime.turns.shown_window import model_calls, replay, window_record
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


async def same_after_opening(session: Session, opener: Opener) -> str:
    """Return what is shown, live and opened anew."""
    live = await shown(session)
    assert await shown(await (await opener(policy=POLICY)).open(session.session_id)) == live
    return str(live)


async def test_a_pin_made_in_a_turn_that_was_undone_holds_after_opening(opener: Opener) -> None:
    """No rewind takes a pin back: what stands is kept when its time has passed, whoever opens the session meanwhile (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await exchange(session, 0)
    await exchange(session, 1)
    await session.pin(4)
    await session.rewind()
    other = await (await opener(policy=POLICY)).open(session.session_id)
    for number in range(2, 14):
        await exchange(other, number)
    assert other.history.window.start_seq > 14
    assert "'n': 0}" in await same_after_opening(other, opener)
    assert "'n': 0}" in str(await shown(session))


async def test_an_unpin_in_a_turn_that_was_undone_holds_after_opening(opener: Opener) -> None:
    """What was unpinned is not kept, though the turn in which somebody did so was undone (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await exchange(session, 0)
    await session.pin(4)
    await exchange(session, 1)
    await session.pin(4, on=False)
    await session.rewind()
    for number in range(2, 14):
        await exchange(session, number)
    assert "'n': 0}" not in await same_after_opening(session, opener)


@pytest.mark.parametrize("end", ["waits", "settled", "consumed"])
async def test_a_pinned_message_that_waits_is_shown_where_a_turn_takes_it(opener: Opener, end: str) -> None:
    """A pin shows no message that nobody took; taken, it stands with its turn, and stays when that is over (B36, C12, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    message = await session.add_event(UserMessageEvent(content="in good time", queued=True))
    await exchange(session, 0)
    await session.pin(message.seq)
    for number in range(1, 12):
        await exchange(session, number)
    assert session.head.window_seq > message.seq
    assert "in good time" not in await same_after_opening(session, opener)
    if end == "consumed":
        async with session.turn() as turn:
            await turn.add_event(AgentMessageEvent(content="now"))
        texts = [message["content"][0].get("text") for message in await shown(session)]
        assert texts[-2:] == ["in good time", "now"]
    elif end == "settled":
        await session.add_event(MessageSettledEvent(seqs=[message.seq], reason="cancelled"))
    for number in range(12, 24):
        await same_after_opening(session, opener)
        await exchange(session, number)
    assert ("in good time" in await same_after_opening(session, opener)) == (end == "consumed")


async def test_a_waiting_message_pinned_when_the_window_is_past_it_is_not_shown(opener: Opener) -> None:
    """Pinned long after it arrived, a message is shown once it was taken, not before (B36, C12, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    message = await session.add_event(UserMessageEvent(content="in good time", queued=True))
    for number in range(12):
        await exchange(session, number)
    await session.pin(message.seq)
    assert "in good time" not in await same_after_opening(session, opener)
    async with session.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="now"))
    for number in range(12, 24):
        await exchange(session, number)
    assert "in good time" in await same_after_opening(session, opener)


async def test_what_is_pinned_one_after_the_other_is_shown_alike_after_opening(opener: Opener) -> None:
    """Several pins of events before the window, and some taken back, with and without anything said between (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    calls = await work(session, calls=6)
    for number in range(12):
        await exchange(session, number)
    for pin in (calls[0], calls[1], calls[3]):
        await session.pin(pin)
        await same_after_opening(session, opener)
    await session.pin(calls[0], on=False)
    await same_after_opening(session, opener)
    await session.add_event(UserMessageEvent(content="on"))
    text = await same_after_opening(session, opener)
    assert [f"result {number}" in text for number in range(4)] == [False, True, False, True]


async def test_an_exchange_stays_while_any_of_it_is_pinned(opener: Opener) -> None:
    """A call and its result are pinned both: taking one pin back leaves the exchange to the other, until it goes too (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await exchange(session, 0)
    await session.pin(3, 4)
    for number in range(1, 12):
        await exchange(session, number)
    await session.pin(3, on=False)
    assert "'n': 0}" in await same_after_opening(session, opener)
    await session.pin(4, on=False)
    assert "'n': 0}" not in await same_after_opening(session, opener)


async def test_an_undone_event_is_not_shown_for_being_pinned_later(opener: Opener) -> None:
    """Pinning what a rewind took back shows it to nobody (C11, B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await exchange(session, 0)
    secret = await session.add_event(UserMessageEvent(content="take that back"))
    await session.rewind()
    for number in range(1, 12):
        await exchange(session, number)
    await session.pin(secret.seq)
    assert "take that back" not in await same_after_opening(session, opener)


async def test_an_old_pin_and_a_summary_are_shown_alike_after_opening(opener: Opener) -> None:
    """What was pinned long ago stands beside the summary at once, and after a restart (B36, C11, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    for number in range(14):
        await exchange(session, number)
    await session.pin(4)
    await same_after_opening(session, opener)
    kept = session.history.window.cut(keep_share=0.3)
    assert kept is not None
    await session.add_event(CompactionEvent(from_seq=1, to_seq=kept - 1, first_kept_seq=kept, summary="they met"))
    for text in (await same_after_opening(session, opener), str(await shown(await session.fork()))):
        assert "they met" in text
        assert "'n': 0}" in text
        assert "question 10" not in text


async def test_a_call_with_a_pin_from_before_its_window_is_replayed_from_the_log(opener: Opener) -> None:
    """What a model was shown of a call that was pinned late is found again, with its result, in the events alone (C6, B36)."""
    manager = await opener(policy=POLICY)
    session = await manager.get_or_create("cli:p")
    for number in range(12):
        await exchange(session, number)
    await session.pin(3)
    async with session.turn() as turn:
        rendering = await session.render("neutral")
        record = window_record(rendering, session.history, provider="p", model="m")
        await turn.add_event(ModelCallEvent(model="m", window=record))
    (call,) = await model_calls(session)
    events = await session.get_full_history()
    assert replay_items([Item(event.seq, event, 10) for event in events], call).matches
    assert (await replay(session, call, store=manager.store)).matches


@pytest.mark.parametrize("notes", [0, 300])
@pytest.mark.parametrize("exchanges", [0, 8])
async def test_a_pinned_answer_has_its_calls_though_a_late_result_came_between(
    opener: Opener, exchanges: int, notes: int
) -> None:
    """However long ago the result's own call was, and whether it is still shown, the answer is the same one (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await session.add_event(UserMessageEvent(content="work"))
    await session.add_event(ToolCallEvent(tool_name="read", tool_call_id="slow", tool_input={}))
    await session.add_event(AgentMessageEvent(content="it takes its time"))
    for number in range(exchanges):
        await exchange(session, number)
    await session.add_events([NoteEvent(kind="app", data={"n": number}) for number in range(notes)])
    await session.add_event(UserMessageEvent(content="meanwhile"))
    answer = await session.add_event(AgentMessageEvent(content="I look"))
    await session.add_event(ToolResultEvent(tool_call_id="slow", result="late"))
    await session.add_event(ToolCallEvent(tool_name="read", tool_call_id="next", tool_input={}))
    await session.add_event(ToolResultEvent(tool_call_id="next", result="found"))
    await session.pin(answer.seq)
    for number in range(12):
        await exchange(session, number)
    assert session.history.window.start_seq > answer.seq + 3
    assert "found" in await same_after_opening(session, opener)


async def test_a_pinned_message_that_joined_a_turn_stays(opener: Opener) -> None:
    """What a turn took while it ran is part of the conversation as what it began with is (B36, B33)."""
    session = await (await opener(policy=POLICY)).get_or_create("cli:p")
    await session.add_event(UserMessageEvent(content="work"))
    async with session.turn() as turn:
        joined = await session.add_event(UserMessageEvent(content="别动配置", queued=True))
        await turn.add_event(TurnSteeredEvent(turn_id=turn.id, consumes=[joined.seq]))
        await turn.add_event(AgentMessageEvent(content="worked"))
    await session.pin(joined.seq)
    for number in range(12):
        await exchange(session, number)
    assert session.head.window_seq > joined.seq
    assert "别动配置" in await same_after_opening(session, opener)
