"""The window of a stored session: what the model sees, over jumps, restarts and boundaries."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.context.policy import WindowPolicy
from kipu.events.boundary import ConsolidationEvent, GenericEvent, NoteEvent
from kipu.events.content import ProviderMark
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.manager.session import Session
from kipu.ports.store import Record, StoredEvent
from kipu.stores.wrapper import WrappedStore
from kipu.testing.validators import validate
from tests.acceptance.manager.conftest import Opener

SMALL = WindowPolicy(max_tokens=600, max_messages=500)


async def exchange(session: Session, number: int, *, size: int = 60) -> None:
    """Add a question, a call with its result, and an answer."""
    await session.add_event(UserMessageEvent(content=f"question {number}"))
    await session.add_event(ToolCallEvent(tool_name="read", tool_call_id=f"call_{number}", tool_input={"n": number}))
    await session.add_event(ToolResultEvent(tool_call_id=f"call_{number}", result="x " * size, tool_name="read"))
    await session.add_event(AgentMessageEvent(content=f"answer {number}"))


async def shown(session: Session) -> list[dict[str, Any]]:
    """Return the neutral window."""
    return await session.get_context_for_llm("neutral")


async def test_the_window_is_the_same_after_a_restart_whenever_it_happens(opener: Opener) -> None:
    """Restarted after any event, recorded jumps and jumps yet to be recorded included, the window is the same (B33, C9)."""
    live = await opener(policy=SMALL)
    session = await live.get_or_create("cli:p")
    await session.add_event(InstructionEvent(content="be brief"))
    jumps = 0
    for number in range(12):
        await exchange(session, number)
        jumps += session.history.unrecorded_jump is not None
        other = await opener(policy=SMALL)
        again = await other.open(session.session_id)
        assert again.history.window.start_seq == session.history.window.start_seq
        assert await shown(again) == await shown(session)
        await other.close()
    assert session.history.window.start_seq > 1
    notes = [event for event in await session.get_full_history() if isinstance(event, NoteEvent)]
    assert [note.kind for note in notes] == ["kipu.window"] * len(notes)
    assert notes


async def test_the_prefix_stays_between_jumps(opener: Opener) -> None:
    """Between two jumps the messages of one turn are a prefix of the next one's; jumps are rare, each recorded once (C9)."""
    session = await (await opener(policy=SMALL)).get_or_create("cli:p")
    before: list[dict[str, Any]] = []
    start, jumps = 0, 0
    for number in range(30):
        await exchange(session, number)
        now = await shown(session)
        if session.history.window.start_seq == start:
            assert now[: len(before)] == before
        else:
            jumps += 1
        before, start = now, session.history.window.start_seq
        assert validate("neutral", {"messages": now}, may_end_with_model=True) == []
        assert session.history.window.tokens <= SMALL.max_tokens
    assert 2 <= jumps <= 15
    notes = [event for event in await session.get_full_history() if isinstance(event, NoteEvent)]
    assert len(notes) <= jumps


class CountingStore(WrappedStore):
    """A store that counts the events it gives out."""

    given = 0

    async def read(self, *args: Any, **kwargs: Any) -> list[StoredEvent]:
        page = await super().read(*args, **kwargs)
        self.given += len(page)
        return page


async def test_opening_reads_the_window_not_the_log(opener: Opener) -> None:
    """Opening a long session reads about what its window holds, whether or not jumps were recorded (C10, B6, B51)."""
    manager = await opener(policy=SMALL)
    session = await manager.get_or_create("cli:p")
    for number in range(150):
        await session.add_events(
            [UserMessageEvent(content=f"question {number} " * 4), AgentMessageEvent(content="a " * 30)]
        )
    for policy in (SMALL, WindowPolicy(max_tokens=900, max_messages=40)):
        other = await opener(policy=policy)
        store = CountingStore(other.store)
        other.store = store
        again = await other.open(session.session_id)
        assert await shown(again)
        assert store.given < 300
    unseen = await opener(policy=WindowPolicy(max_tokens=10**9, max_messages=10**9))
    imported = await unseen.create_session("imported")
    for number in range(20):
        many = [UserMessageEvent(content=f"q{number}.{part} " + "word " * 20) for part in range(100)]
        await (await unseen.open(imported)).add_events(many)
    other = await opener(policy=SMALL)
    store = CountingStore(other.store)
    other.store = store
    assert await shown(await other.open(imported))
    assert store.given < 700


async def test_history_starts_behind_the_consolidation_boundary(opener: Opener) -> None:
    """get_history begins after last_consolidated, then cuts to max_messages, at a user message (A29-A34)."""
    manager = await opener()
    session = await manager.get_or_create("cli:p")
    for number in range(4):
        await exchange(session, number)
    boundary = 5  # the answer of the first exchange: a boundary in the log, not a time
    async with session.turn() as turn:
        await turn.add_event(ConsolidationEvent(to_seq=boundary, memory_ids=["m1"]))
    assert session.last_consolidated == boundary
    history = await session.get_history()
    assert history[0]["content"] == "question 1"
    assert len(history) == 12
    cut = await session.get_history(max_messages=6)
    assert [message["role"] for message in cut] == ["user", "assistant", "tool", "assistant"]
    assert cut[0]["content"] == "question 3"
    assert (await session.get_history(max_messages=3))[0]["content"] == "question 3"
    reopened = await (await opener()).open(session.session_id)
    assert reopened.last_consolidated == boundary
    assert await reopened.get_history() == history


async def test_pinned_exchanges_stay_over_jumps_and_restarts(opener: Opener) -> None:
    """A pinned result keeps its whole exchange in the window when its time has passed, also after a restart (B36)."""
    manager = await opener(policy=SMALL)
    session = await manager.get_or_create("cli:p")
    await exchange(session, 0)
    await session.pin(4)
    for number in range(1, 20):
        await exchange(session, number)
    assert session.history.window.start_seq > 6
    for one in (session, await (await opener(policy=SMALL)).open(session.session_id)):
        calls = [
            part["id"] for message in await shown(one) for part in message["content"] if part["type"] == "tool_call"
        ]
        assert len(calls) >= 2
        text = str(await shown(one))
        assert "'n': 0" in text
        assert validate("neutral", {"messages": await shown(one)}, may_end_with_model=True) == []
    await session.pin(4, on=False)
    for number in range(20, 30):
        await exchange(session, number)
    assert "'n': 0}" not in str(await shown(session))


async def test_the_newest_user_message_always_stays(opener: Opener) -> None:
    """However small the budget, the newest user message is shown (A33)."""
    session = await (await opener(policy=WindowPolicy(max_tokens=50, max_messages=2))).get_or_create("cli:p")
    for number in range(5):
        await exchange(session, number, size=400)
    await session.add_event(UserMessageEvent(content="newest"))
    assert "newest" in str((await shown(session))[-1])


async def test_another_model_gets_a_window_it_accepts(opener: Opener) -> None:
    """Opaque reasoning goes back to who made it only; each provider's window is valid (C28)."""
    session = await (await opener()).get_or_create("cli:p")
    await session.add_event(UserMessageEvent(content="q"))
    mark = ProviderMark(
        name="anthropic",
        model="m1",
        opaque={"blocks": [{"type": "thinking", "thinking": "hm", "signature": "c2VhbA=="}]},
    )
    await session.add_event(AgentMessageEvent(content="a", reasoning="hm", provider=mark))
    await session.add_event(UserMessageEvent(content="q2"))
    for target in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        rendering = await session.render(target, provider="other", model="m2")
        assert validate(target, rendering.payload) == []
        assert "c2VhbA==" not in str(rendering.payload)


async def test_a_window_policy_can_change_between_turns(opener: Opener) -> None:
    """A smaller model gets a smaller window of the same log, and the log is untouched (C28, C8)."""
    session = await (await opener()).get_or_create("cli:p")
    for number in range(20):
        await exchange(session, number)
    whole, log = await shown(session), await session.get_full_history()
    await session.set_policy(SMALL)
    assert len(await shown(session)) < len(whole)
    assert session.history.window.tokens <= SMALL.max_tokens
    assert await session.get_full_history() == log


async def test_appending_reads_nothing_and_writes_only_what_is_new(opener: Opener) -> None:
    """An append costs the same however long the session is: it reads no event, and its record does not grow (B5)."""
    manager = await opener()
    store = CountingStore(manager.store)
    manager.store = store
    session = await manager.get_or_create("cli:p")
    sizes: list[int] = []
    for _ in range(5):
        batch = [AgentMessageEvent(content="filler " * 20) for _ in range(200)]
        await session.add_events(batch)
        given = store.given
        await session.add_event(UserMessageEvent(content="the same words"))
        assert store.given == given
        (stored,) = await store.inner.read(session.session_id, limit=1, backwards=True)
        sizes.append(len(stored.record.body))
    assert len(set(sizes)) == 1


async def test_repeated_provider_ids_pair_in_order(opener: Opener) -> None:
    """A result belongs to the open call with its id, although every turn calls it call_0 (B17, EV-13, situation 27)."""
    session = await (await opener()).get_or_create("cli:p")
    for number in range(3):
        await session.add_event(UserMessageEvent(content=f"q{number}"))
        await session.add_event(ToolCallEvent(tool_name="t", tool_call_id="call_0", tool_input={"n": number}))
        await session.add_event(ToolResultEvent(tool_call_id="call_0", result=f"result {number}"))
    window = await shown(session)
    calls = [part for message in window for part in message["content"] if part["type"] == "tool_call"]
    results = [part for message in window for part in message["content"] if part["type"] == "tool_result"]
    assert [call["input"]["n"] for call in calls] == [0, 1, 2]
    assert [result["content"][0]["text"] for result in results] == ["result 0", "result 1", "result 2"]
    assert [result["id"] for result in results] == [call["id"] for call in calls]
    assert len({call["id"] for call in calls}) == 3


async def test_a_stored_event_that_does_not_validate_costs_only_itself(opener: Opener) -> None:
    """What does not validate is read as a generic event that says why; the rest of the session is as it was (B28, EV-9)."""
    manager = await opener()
    session_id = (await manager.get_or_create("cli:p")).session_id
    session = await manager.open(session_id)
    await session.add_event(UserMessageEvent(content="before"))
    bad = Record(
        "01900000-0000-7000-8000-000000000000", "user_message", "2026-01-01T00:00:00.000000Z", b'{"content":7}'
    )
    await manager.store.append(session_id, [bad])
    await session.add_event(UserMessageEvent(content="after"))
    again = await (await opener()).open(session_id)
    events = await again.get_full_history()
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert isinstance(events[2], GenericEvent)
    assert events[2].model_extra is not None
    assert "content" in events[2].model_extra["unreadable"]
    assert [message["content"] for message in await again.get_context_for_llm()] == ["before", "after"]


@pytest.mark.parametrize("max_messages", [4, 6, 9])
async def test_a_jump_parts_no_answer_that_a_message_came_into(opener: Opener, max_messages: int) -> None:
    """No window begins between the calls and results of one answer because somebody spoke meanwhile (A2, A33)."""
    policy = WindowPolicy(max_tokens=100_000, max_messages=max_messages, low_water=0.3)
    session = await (await opener(policy=policy)).get_or_create("cli:p")
    for number in range(8):
        await session.add_event(UserMessageEvent(content=f"question {number}"))
        async with session.turn() as turn:
            await turn.add_event(ToolCallEvent(tool_name="read", tool_call_id=f"first_{number}", tool_input={}))
            await session.add_event(UserMessageEvent(content=f"not so fast {number}"))
            await turn.add_event(ToolCallEvent(tool_name="read", tool_call_id=f"second_{number}", tool_input={}))
            for name in ("first", "second"):
                gave = f"what {name} {number} gave"
                await turn.add_event(ToolResultEvent(tool_call_id=f"{name}_{number}", result=gave))
                rendering = await session.render("neutral")
                assert [note for note in rendering.adjustments if note.kind == "orphan_dropped"] == []
                assert gave in str(rendering.messages)
            await turn.add_event(AgentMessageEvent(content="done"))
