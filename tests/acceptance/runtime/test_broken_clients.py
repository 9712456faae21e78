"""Clients of models that break their contract: how the turn ends, and what is kept of what had streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from kipu.errors import ModelStreamCutError
from kipu.events.conversation import AgentMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.models.reply_stream import ReplyStream
from kipu.runtime.observer import RetryNews
from kipu.runtime.turns.compaction import Compaction
from kipu.runtime.turns.spending import TurnLimits
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import of_type, runtime, until
from tests.acceptance.runtime.test_compaction import SMALL, AiModelClient, talk


class BreakingModel(AiModelClient):
    """Say a little, then raise what no contract allows, the first `times` times."""

    def __init__(self, error: BaseException, *, times: int = 1) -> None:
        super().__init__(lambda _request: "All of it.")
        self.error = error
        self.left = times

    def stream(self, request: ModelRequest) -> ReplyStream:
        stream = super().stream(request)
        if not self.left:
            return stream
        self.left -= 1
        said = ModelReply(({"type": "text", "text": "Half of"},), "scripted", "model-1", "Half of", state="interrupted")

        async def breaking() -> AsyncGenerator[ModelEvent, None]:
            yield TextDelta("Half of")
            raise self.error

        return ReplyStream(breaking(), lambda: said)


async def test_cancellation_that_a_client_lets_out_is_an_answer_cut_short() -> None:
    """Nobody stopped the turn: the model is asked again, as after any cut (A72, C5)."""
    model = BreakingModel(asyncio.CancelledError())
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "go")
        finished = await until(session, TurnFinishedEvent)
        answers = [event.content for event in await of_type(session, AgentMessageEvent)]
    assert (finished.outcome, answers) == ("completed", ["All of it."])


async def test_client_that_cancels_itself_for_ever_fails_its_turn_and_keeps_what_it_said() -> None:
    """The turn is `failed` with the reason, and not `cancelled` by nobody (A72, C5)."""
    model = BreakingModel(asyncio.CancelledError(), times=99)
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "go")
        finished = await until(session, TurnFinishedEvent)
        answers = [(event.content, event.state) for event in await of_type(session, AgentMessageEvent)]
    assert finished.outcome == "failed"
    assert "model_stream_cut" in finished.error
    assert answers == [("Half of", "interrupted")]


async def test_fault_of_a_client_loses_nothing_that_had_streamed() -> None:
    """What a person saw is in the log, whatever a client raises (C5, A24)."""
    async with runtime(BreakingModel(ZeroDivisionError("its own"))) as run:
        session = await run.session()
        await run.say(session, "go")
        finished = await until(session, TurnFinishedEvent)
        answers = [(event.content, event.state) for event in await of_type(session, AgentMessageEvent)]
    assert (finished.outcome, finished.error) == ("failed", "ZeroDivisionError: its own")
    assert answers == [("Half of", "interrupted")]


async def test_client_that_cancels_itself_makes_no_summary_and_says_so() -> None:
    """A person who asks for a summary gets an error, and no cancellation of what asked (A60)."""
    model = BreakingModel(asyncio.CancelledError(), times=99)
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        await talk(session, 24)
        with pytest.raises(ModelStreamCutError):
            await Compaction(session, model).now()


@pytest.mark.parametrize("ends", ["stop", "limit"])
async def test_answer_whose_next_try_never_comes_is_kept(ends: str) -> None:
    """What a person saw of a cut answer is in the log, also where the turn ends while it waits to ask again (C5)."""
    cut = ModelStreamCutError(model="m", endpoint="e", reason="gone", retry_after_s=60)
    model = ScriptedModelClient([ScriptedReply("Half of it is here", error=cut)])
    limits = TurnLimits(max_seconds=3.0) if ends == "limit" else TurnLimits()
    async with runtime(model, limits=limits) as run:
        session = await run.session()
        with run.feed.listen(session.session_id) as listener:
            await run.say(session, "go")
            async with asyncio.timeout(60):
                async for news in listener:
                    if isinstance(news, RetryNews):
                        break
        if ends == "stop":
            await ControlLane(run.manager, wake=run.worker.wake).stop(session.session_id)
        finished = await until(session, TurnFinishedEvent)
        answers = [(event.content, event.state) for event in await of_type(session, AgentMessageEvent)]
    assert finished.outcome == ("cancelled" if ends == "stop" else "failed")
    assert answers == [("Half of it is here", "interrupted")]
