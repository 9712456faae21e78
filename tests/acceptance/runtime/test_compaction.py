"""Compaction: older history summarised, the log untouched, nothing changed by a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.context.policy import WindowPolicy
from kipu.context.tokens import EstimateCounter
from kipu.errors import InputError, ModelAnswerError, ModelUnavailableError
from kipu.events.boundary import CompactionEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.manager.session import Session
from kipu.ports.model import ModelDescription, ModelRequest
from kipu.runtime.turns.compaction import INSTRUCTION, Compaction
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime

SMALL = WindowPolicy(max_tokens=3_000)


class AiModelClient(ScriptedModelClient):
    """A scripted model that is taken for a real one."""

    def describe(self) -> ModelDescription:
        described = super().describe()
        return ModelDescription(described.name, described.provider, described.model, is_ai=True)


def is_summary(request: ModelRequest) -> bool:
    return INSTRUCTION[:40] in str(request.messages[0])


def chatty(summary: Any = "They talked about khipus.") -> AiModelClient:
    """Answer at length, and summarise by `summary`."""

    def answer(request: ModelRequest) -> Any:
        return summary if is_summary(request) else "word " * 120

    return AiModelClient(answer)


async def talk(session: Session, count: int) -> None:
    """Put `count` exchanges into the log."""
    for number in range(count):
        await session.add_event(UserMessageEvent(content=f"question {number} " + "ask " * 60))
        await session.add_event(AgentMessageEvent(content=f"answer {number} " + "say " * 60))


async def test_window_is_summarised_before_it_overflows() -> None:
    """A long session gets summaries by itself; every window stays valid and shows the newest one (A61, C7, C11)."""
    model = chatty()
    async with await open_manager("memory://", policy=SMALL) as manager, runtime(model, manager=manager) as run:
        session = await run.session()
        for number in range(30):
            await run.say(session, f"message {number} " + "ask " * 40)
            await run.settled()
        compactions = await of_type(session, CompactionEvent)
        assert compactions
        windows = [request for request in model.requests if not is_summary(request)]
        for request in windows:
            assert validate_neutral(list(request.messages)) == []
        assert "They talked about khipus." in str(windows[-1].messages[0])
        assert len(await of_type(session, UserMessageEvent)) == 30, "the log has everything"
        assert {event.outcome for event in await of_type(session, TurnFinishedEvent)} == {"completed"}


async def test_summary_covers_what_the_window_no_longer_shows() -> None:
    """Between the summary and the first kept message there is no gap, and the summary builds on the one before."""
    model = chatty()
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        compaction = Compaction(session, model)
        await talk(session, 12)
        await compaction.now()
        await talk(session, 12)
        await compaction.now()
        first, second = await of_type(session, CompactionEvent)
        assert second.from_seq <= first.first_kept_seq
        assert first.to_seq + 1 == first.first_kept_seq
        assert model.requests[-1].messages[1]["content"][0]["text"].startswith("SUMMARY SO FAR:\nThey talked")
        window = await session.get_context_for_llm("neutral")
        assert "question 0 " not in str(window)
        assert session.history.window.start_seq == second.first_kept_seq


async def test_failing_summary_changes_nothing() -> None:
    """A model that cannot summarise leaves log and window as they were; the turn goes on (A60)."""
    error = ModelUnavailableError(model="m", reason="down", status=503, retry_after_s=None)
    model = chatty(error)
    async with await open_manager("memory://", policy=SMALL) as manager, runtime(model, manager=manager) as run:
        session = await run.session()
        await talk(session, 12)
        before = session.history.last_seq
        with pytest.raises(ModelUnavailableError):
            await Compaction(session, model).now()
        assert session.history.last_seq == before
        for number in range(12):
            await run.say(session, f"message {number} " + "ask " * 40)
            await run.settled()
        assert await of_type(session, CompactionEvent) == []
        assert {event.outcome for event in await of_type(session, TurnFinishedEvent)} == {"completed"}


async def test_empty_summary_is_a_failure() -> None:
    """A summary of nothing but white space is not appended."""
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        await talk(session, 12)
        with pytest.raises(ModelAnswerError):
            await Compaction(session, chatty("  \n")).now()
        assert await of_type(session, CompactionEvent) == []


async def test_rewind_while_the_summary_is_made_wins() -> None:
    """A summary of what was undone meanwhile is not appended (A59)."""
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        await talk(session, 12)
        model = chatty(ScriptedReply("late", hold_after=0))
        work = asyncio.ensure_future(Compaction(session, model).now())
        await asyncio.wait_for(model.held.wait(), 60)
        await session.rewind(turns=2)
        model.release()
        with pytest.raises(InputError, match="changed"):
            await work
        assert await of_type(session, CompactionEvent) == []


async def test_summary_does_not_hold_the_session() -> None:
    """While a command's summary is made, messages are answered (A58)."""
    slow = chatty(ScriptedReply("slow summary", hold_after=0))
    async with await open_manager("memory://", policy=SMALL) as manager, runtime(slow, manager=manager) as run:
        session = await run.session()
        await talk(session, 12)
        work = asyncio.ensure_future(Compaction(session, slow).now())
        await asyncio.wait_for(slow.held.wait(), 60)
        await run.say(session, "quick question")
        await asyncio.wait_for(run.worker.until_idle(), 60)
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
        slow.release()
        await work


async def test_long_turn_is_summarised_between_its_steps() -> None:
    """In one turn of many calls the summary never cuts an exchange, and no call loses its result (A2, A61)."""

    async def big(_arguments: Any, _context: Any) -> str:
        return "line " * 150

    asked = iter(range(25))

    def answer(request: ModelRequest) -> Any:
        if is_summary(request):
            return "Many lines were read."
        return ScriptedReply(calls=[ScriptedCall("big")]) if next(asked) < 24 else "Done."

    model = AiModelClient(answer)
    async with (
        await open_manager("memory://", policy=SMALL) as manager,
        runtime(model, FunctionTool("big", big), manager=manager) as run,
    ):
        session = await run.session()
        await run.say(session, "read it all")
        await run.settled()
        assert await of_type(session, CompactionEvent)
        assert len(await of_type(session, ToolCallEvent)) == 24
        for request in model.requests:
            if not is_summary(request):
                assert validate_neutral(list(request.messages)) == []
        assert "read it all" in str(model.requests[-1].messages), "the newest user message stays (A33)"


async def test_without_a_model_the_summary_is_extracted() -> None:
    """A model that is no AI is not asked: what was asked and touched is listed by rules."""
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        await talk(session, 24)
        model = ScriptedModelClient([])
        event = await Compaction(session, model).now()
        assert "question 0" in event.summary
        assert "no model was asked" in event.summary
        assert model.requests == []


async def test_a_summary_by_rules_leaves_room_for_what_is_newer() -> None:
    """Long Chinese questions and a file's content where a name is looked for make no summary that fills the window (C7)."""
    model = ScriptedModelClient([])
    async with await open_manager("memory://", policy=SMALL) as manager, runtime(model, manager=manager) as run:
        session = await run.session()
        for number in range(24):
            call = ToolCallEvent(tool_name="put", tool_call_id=f"c{number}", tool_input={"file": "data " * 9_000})
            await session.add_events([UserMessageEvent(content=f"{number} " + "请改配置" * 40), call])
            await session.add_event(
                ToolResultEvent(tool_call_id=call.tool_call_id, is_error=True, error_info="no space")
            )
            if number % 4 == 3:
                await Compaction(session, model).now()
            assert session.history.window.tokens <= SMALL.max_tokens
        summary = (await of_type(session, CompactionEvent))[-1].summary
        assert EstimateCounter().count(summary) <= SMALL.max_tokens / 2
        assert "put: no space" in summary


@pytest.mark.parametrize("ai", [True, False])
async def test_a_short_session_is_not_made_longer_by_its_summary(ai: bool) -> None:
    """Where the summary would take more of the window than what it stands for, whoever asked is told, and nothing changes (A61)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("test:1")
        await session.add_events([UserMessageEvent(content="hello"), AgentMessageEvent(content="hello to you")])
        await session.add_event(AgentMessageEvent(content="what is it about?"))
        before, log = await session.get_context_for_llm("neutral"), await session.get_full_history()
        model = chatty("They said hello to each other, and then hello again. " * 5) if ai else ScriptedModelClient([])
        with pytest.raises(InputError, match="too little history"):
            await Compaction(session, model).now()
        assert await session.get_full_history() == log
        assert await session.get_context_for_llm("neutral") == before
