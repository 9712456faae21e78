"""Limits: they cut an answer while it comes, and what came is kept; one that bounds nothing is none that was meant."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ModelUnavailableError
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.ports.model import ModelUsage
from kipu.runtime.agent_builder import AgentSettings, ProjectSettings
from kipu.runtime.messages.inbound import InboundEvent
from kipu.runtime.turns.spending import TurnLimits
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager, open_runtime
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime, until

GPT = {"provider": "openai", "model": "gpt-4o"}
SLOWER = (1, 10)  # a turn in whose time nothing had even begun is given more of it
WELL_BEFORE_S = 30  # a provider asks for 60, and silence is kept longer


@pytest.mark.parametrize(
    ("limits", "model", "word"),
    [
        (TurnLimits(max_tokens=3_000), {}, "tokens"),
        (TurnLimits(max_seconds=0.5), {}, " s, its limit"),
        (TurnLimits(max_cost_usd=0.01), GPT, "cost $"),
    ],
)
async def test_endless_answer_ends_at_the_limit_and_is_kept(limits: TurnLimits, model: Any, word: str) -> None:
    """An answer that does not end is cut by tokens, time and money, and what was said stays in the log (A72, C5)."""
    # In pieces so short that its time is over before it is too long for any answer.
    answers: list[AgentMessageEvent] = []
    for slower in SLOWER:
        client = ScriptedModelClient([ScriptedReply("on and on ", endless=True)], **model)
        time_s = None if limits.max_seconds is None else limits.max_seconds * slower
        async with runtime(client, limits=replace(limits, max_seconds=time_s)) as run:
            session = await run.session()
            await run.say(session, "talk")
            finished = await until(session, TurnFinishedEvent)
            assert finished.outcome == "failed"
            assert word in (finished.error or "")
            assert len(client.requests) <= 1
            assert client.running == 0
            answers = await of_type(session, AgentMessageEvent)
        if answers:
            break
    (answer,) = answers
    assert answer.state == "interrupted"
    assert str(answer.content).startswith("on and on")


async def test_silent_answer_ends_with_the_turns_time() -> None:
    """A model that stops in the middle of its answer is cut when the turn's time is over, not after the silence it may keep."""
    answers: list[AgentMessageEvent] = []
    for slower in SLOWER:
        client = ScriptedModelClient([ScriptedReply("so it begins, and then", hold_after=1)])
        async with runtime(client, limits=TurnLimits(max_seconds=0.4 * slower)) as run:
            session = await run.session()
            began = time.monotonic()
            await run.say(session, "talk")
            finished = await until(session, TurnFinishedEvent)
            assert time.monotonic() - began < WELL_BEFORE_S
            assert (finished.outcome, " s, its limit" in (finished.error or "")) == ("failed", True)
            answers = await of_type(session, AgentMessageEvent)
        if answers:
            break
    (answer,) = answers
    assert (answer.state, answer.content) == ("interrupted", "so it begins")


async def test_waiting_for_a_provider_ends_with_the_turns_time() -> None:
    """A provider that asks for a long pause is not waited for beyond the turn's time."""
    fault = ModelUnavailableError(model="m", status=503, reason="busy", retry_after_s=60.0)
    client = ScriptedModelClient([fault, fault, "never"])
    async with runtime(client, limits=TurnLimits(max_seconds=0.4)) as run:
        session = await run.session()
        began = time.monotonic()
        await run.say(session, "talk")
        finished = await until(session, TurnFinishedEvent)
        assert time.monotonic() - began < WELL_BEFORE_S
        assert finished.outcome == "failed"


async def test_answer_within_the_limits_is_not_cut() -> None:
    """What is left of a budget can be used: an answer that stays below it ends by itself."""
    client = ScriptedModelClient([ScriptedReply("word " * 2_000, usage=ModelUsage(10, 2_000))])
    async with runtime(client, limits=TurnLimits(max_tokens=4_000, max_seconds=60)) as run:
        session = await run.session()
        await run.say(session, "talk")
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"


async def test_time_of_a_crashed_process_counts(tmp_path: Path) -> None:
    """What a turn was worked on before its process went away counts toward its limit of time; being parked does not."""
    look, url = FunctionTool("look"), f"sqlite:///{tmp_path}/s.db"

    async def slowly(_arguments: Any, _context: Any) -> str:
        await asyncio.sleep(0.5)
        return "looked"

    look.function = slowly
    replies = [ScriptedReply(calls=[ScriptedCall("look")]), ScriptedReply("so it begins", hold_after=0)]
    client = ScriptedModelClient(replies)
    async with runtime(client, look, url=url, limits=TurnLimits(max_seconds=60)) as run:
        session_id = (await run.session()).session_id
        await run.say(await run.session(), "talk")
        await asyncio.wait_for(client.held.wait(), 60)
    again = ScriptedModelClient(["never"])
    async with (
        await open_manager(url) as manager,
        runtime(again, look, manager=manager, limits=TurnLimits(max_seconds=0.45)) as run,
    ):
        session = await manager.open(session_id)
        finished = await until(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert again.requests == []
        assert len(await of_type(session, ToolResultEvent)) == 1


@pytest.mark.parametrize("whose", ["session", "project"])
@pytest.mark.parametrize(
    "limits",
    [{"max_cost_usd": "0.50"}, {"max_steps": True}, {"max_seconds": -1}, {"max_tokens": [1]}, ["max_steps"], 5],
    ids=repr,
)
async def test_limit_that_bounds_nothing_is_said_before_the_model_is_asked(
    tmp_path: Path, limits: Any, whose: str
) -> None:
    """What is written as a limit and cannot be one fails the turn with its name, and is not taken for none (A72, B37)."""
    model = ScriptedModelClient(["never asked"])
    project = ProjectSettings(limits=limits if whose == "project" else None)
    settings = AgentSettings(tmp_path / "work", sandbox="off", project=lambda _record: project)
    async with (
        await open_manager("memory://") as manager,
        open_runtime(manager, settings=settings, open_model=lambda _name: model) as run,
    ):
        kept = {"limits": limits} if whose == "session" else {}
        session_id = await manager.create_session(key="chat:1", initial_context=kept)
        said = InboundEvent(channel="chat", chat_id="1", sender_id="ada", content="hello")
        await run.bus.send(session_id, said)
        async with asyncio.timeout(60):
            await run.worker.until_idle()
        (finished,) = await of_type(await manager.open(session_id), TurnFinishedEvent)
        assert (finished.outcome, model.requests) == ("failed", [])
        assert "limits" in finished.error
        assert finished.error.endswith("[configuration]")
