"""Turns with tools: what is appended, in which order, and what ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.errors import ModelRateLimitedError, ModelRefusedError, ModelUnavailableError
from kipu.events.conversation import (
    AgentMessageEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.turn import StopRequestedEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.ports.model import ModelRequest, TextDelta
from kipu.runtime.observer import ModelNews, RetryNews
from kipu.runtime.turns.spending import TurnLimits
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from tests.acceptance.runtime.fakes import FunctionTool, kinds, of_type, runtime, until


async def test_turn_appends_each_step_before_the_next() -> None:
    """A turn with two parallel calls is on record as the flow says, each step before the next (A24, A35, C3)."""
    model = ScriptedModelClient(
        [ScriptedReply("Let me look.", calls=[ScriptedCall("look"), ScriptedCall("look")]), "Found it."]
    )
    async with runtime(model, FunctionTool("look")) as run:
        session = await run.session()
        await run.say(session, "where is it?")
        await run.settled()

        assert await kinds(session) == [
            "user_message",
            "turn_started",
            "model_call",
            "agent_message",
            "tool_call",
            "tool_call",
            "tool_started",
            "tool_started",
            "tool_result",
            "tool_result",
            "model_call",
            "agent_message",
            "turn_finished",
        ]
        first, second = await of_type(session, ToolCallEvent)
        assert first.tool_call_id != second.tool_call_id
        assert [first.provider_call_id, second.provider_call_id] == ["call_0", "call_1"]
        assert session.head.open_turn is None


async def test_model_is_shown_the_results_of_its_calls() -> None:
    """The second call of a turn shows a valid window with every result behind its call (A2, A25)."""
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("look", {"path": "a"})]), "Done."])
    async with runtime(model, FunctionTool("look")) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()

        shown = model.requests[1].messages
        assert [message["role"] for message in shown] == ["user", "assistant", "tool"]
        assert validate_neutral(list(shown)) == []
        assert [tool["name"] for tool in model.requests[0].tools] == ["look"]


async def test_turns_of_one_session_run_in_order_of_arrival() -> None:
    """Of two messages in quick succession the second is answered only after the first's turn has ended (A1, A39, A43)."""
    running, most = 0, 0

    async def slow(_arguments: Any, _context: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    def answer(request: ModelRequest) -> ScriptedReply:
        last = request.messages[-1]
        if last["role"] == "tool":
            return ScriptedReply("finished")
        return ScriptedReply(calls=[ScriptedCall("slow")])

    async with runtime(ScriptedModelClient(answer), FunctionTool("slow", slow)) as run:
        session = await run.session()
        seqs = [await run.say(session, f"task {number}") for number in range(4)]
        await run.settled()

        turns = await of_type(session, TurnStartedEvent)
        assert [turn.consumes for turn in turns] == [[seq] for seq in seqs]
        assert most == 1
        order = [kind for kind in await kinds(session) if kind.startswith("turn_")]
        assert order == ["turn_started", "turn_finished"] * 4


async def test_turns_of_different_sessions_overlap() -> None:
    """A turn that waits delays no turn of another session (A40, A41, A43)."""
    model = ScriptedModelClient(
        lambda request: (
            ScriptedReply("slow", hold_after=0) if "slow" in str(request.messages) else ScriptedReply("fast")
        )
    )
    async with runtime(model) as run:
        slow, fast = await run.session("test:slow"), await run.session("test:fast")
        await run.say(slow, "slow one")
        await asyncio.wait_for(model.held.wait(), 60)
        await run.say(fast, "quick one")
        await until(fast, TurnFinishedEvent)
        assert not await of_type(slow, TurnFinishedEvent)
        model.release()
        await run.settled()
        assert [event.outcome for event in await of_type(slow, TurnFinishedEvent)] == ["completed"]


async def test_stop_keeps_what_had_streamed_and_ends_the_turn() -> None:
    """A stop request from anywhere ends a streaming answer; what had come is kept as interrupted (A44, C13)."""
    model = ScriptedModelClient([ScriptedReply("one two three four five six seven", hold_after=1), "next"])
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "count")
        await asyncio.wait_for(model.held.wait(), 60)
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or ""))
        await run.settled_soon(session)

        answer = (await of_type(session, AgentMessageEvent))[-1]
        assert answer.state == "interrupted"
        assert "one two".startswith(answer.content.strip()[:7])
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["cancelled"]


async def test_stop_closes_running_calls_as_cancelled() -> None:
    """A stop in the middle of a call leaves a result for it that says so, and the next window is valid (A2, A35)."""
    began = asyncio.Event()

    async def hang(_arguments: Any, _context: Any) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("hang"), ScriptedCall("look")]), "after"])
    async with runtime(model, FunctionTool("hang", hang), FunctionTool("look")) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(began.wait(), 60)
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or ""))
        await run.settled_soon(session)

        results = await of_type(session, ToolResultEvent)
        assert sorted(result.synthetic or "" for result in results) == ["", "cancelled"]
        await run.say(session, "and now?")
        await run.settled()
        assert validate_neutral(list(model.requests[-1].messages)) == []


async def test_passing_fault_is_waited_out_and_told() -> None:
    """A model that is overloaded is asked again, and whoever watches hears of it; the log has one answer."""
    model = ScriptedModelClient(
        [
            ModelUnavailableError(model="m", reason="overloaded", status=529, retry_after_s=None),
            ModelRateLimitedError(model="m", reason="slow down", retry_after_s=0.001),
            "at last",
        ]
    )
    async with runtime(model) as run:
        session = await run.session()
        with run.feed.listen(session.session_id) as listener:
            await run.say(session, "hello")
            await run.settled()
            news = listener.drain()
        assert len([entry for entry in news if isinstance(entry, RetryNews)]) == 2
        said = "".join(
            entry.event.text for entry in news if isinstance(entry, ModelNews) and isinstance(entry.event, TextDelta)
        )
        assert said == "at last"
        assert [event.content for event in await of_type(session, AgentMessageEvent)] == ["at last"]
        assert len(await of_type(session, ModelCallEvent)) == 1


async def test_stream_that_breaks_is_asked_for_again_and_leaves_no_half_answer() -> None:
    """An answer that breaks off is asked for again; only the whole one is in the history."""
    model = ScriptedModelClient(
        [
            ScriptedReply(
                "half of", error=ModelUnavailableError(model="m", reason="cut", status=None, retry_after_s=None)
            ),
            "the whole",
        ]
    )
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "hello")
        await run.settled()
        assert [event.content for event in await of_type(session, AgentMessageEvent)] == ["the whole"]


async def test_refusal_is_met_by_stricter_windows_and_then_fails() -> None:
    """A request that is refused at every rung of the ladder ends the turn as failed; the message is kept (A2)."""
    refused = ModelRefusedError(model="m", reason="bad role", status=400)
    model = ScriptedModelClient([refused] * 6)
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "hello")
        await run.settled()
        finished = (await of_type(session, TurnFinishedEvent))[0]
        assert finished.outcome == "failed"
        assert "model_refused" in finished.error
        assert len(model.requests) == 4  # the ladder has four rungs
        assert session.policy.ladder == "normal"


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (ScriptedCall("nosuch"), "nosuch"),
        (ScriptedCall("look", "{broken"), "JSON"),
        (ScriptedCall("typed", {"path": 5}), "path"),
    ],
)
async def test_bad_call_is_a_result_that_the_model_sees(call: ScriptedCall, word: str) -> None:
    """An unknown tool, broken JSON and wrong arguments are error results, and never end the turn."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    model = ScriptedModelClient([ScriptedReply(calls=[call]), "I see."])
    typed = FunctionTool("typed", spec_fields={"parameters": schema})
    async with runtime(model, FunctionTool("look"), typed) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        result = (await of_type(session, ToolResultEvent))[0]
        assert result.is_error
        assert word in str(result.result)
        assert (await of_type(session, TurnFinishedEvent))[0].outcome == "completed"
        assert typed.calls == []


async def test_tool_that_raises_or_hangs_is_a_result() -> None:
    """A tool's own fault and its time running out are error results; the turn goes on."""

    async def boom(_arguments: Any, _context: Any) -> str:
        raise RuntimeError("boom")

    async def hang(_arguments: Any, _context: Any) -> str:
        await asyncio.Event().wait()
        return ""

    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("boom"), ScriptedCall("hang")]), "I see."])
    tools = FunctionTool("boom", boom), FunctionTool("hang", hang, {"timeout_s": 0.05})
    async with runtime(model, *tools) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        results = {event.tool_name: event for event in await of_type(session, ToolResultEvent)}
        assert "boom" in results["boom"].result
        assert results["hang"].error_info == "timeout"
        assert (await of_type(session, TurnFinishedEvent))[0].outcome == "completed"


async def test_turn_ends_at_its_limit_with_every_call_closed() -> None:
    """A model that calls for ever is stopped at the limit; the open calls are closed and the turn says why."""
    model = ScriptedModelClient(lambda _request: ScriptedReply(calls=[ScriptedCall("look")]))
    async with runtime(model, FunctionTool("look"), limits=TurnLimits(max_steps=3)) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        finished = (await of_type(session, TurnFinishedEvent))[0]
        assert (finished.outcome, len(model.requests)) == ("failed", 3)
        assert "limit" in finished.error
        assert len(await of_type(session, ToolCallEvent)) == len(await of_type(session, ToolResultEvent)) == 3
        assert finished.usage["steps"] == 3


async def test_message_that_waited_is_answered_by_a_worker_that_starts_later() -> None:
    """A message that no worker saw arrive is found by the sweep (C5)."""
    async with runtime(ScriptedModelClient(["hello"])) as run:
        session = await run.session()
        await session.add_event(UserMessageEvent(content="anyone?", queued=True))
        await until(session, TurnFinishedEvent)
