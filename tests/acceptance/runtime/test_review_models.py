"""Edges of model calls: windows that are too long for a provider, and answers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kipu.errors import ModelContextOverflowError
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta
from kipu.runtime.models.reply_stream import ReplyStream
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from tests.acceptance.runtime.fakes import of_type, runtime


async def test_window_shrinks_from_what_was_shown_until_it_fits() -> None:
    """A provider whose window is far smaller than the budget is shown less each time, from what it was shown (A33, C7)."""

    def answer(request: ModelRequest) -> Any:
        if len(str(request.messages)) > 4_000:
            return ModelContextOverflowError(model="m", reason="too long", status=400)
        return "It fits."

    model = ScriptedModelClient(answer)
    async with runtime(model) as run:
        session = await run.session()
        for number in range(40):
            await session.add_event(UserMessageEvent(content=f"question {number} " + "ask " * 60))
            await session.add_event(AgentMessageEvent(content=f"answer {number} " + "say " * 60))
        await run.say(session, "the newest question")
        await run.settled()
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert (finished.outcome, finished.error) == ("completed", None)
        assert "the newest question" in str(model.requests[-1].messages)
        assert validate_neutral(list(model.requests[-1].messages)) == []


async def test_empty_answers_end_the_turn_with_a_reason() -> None:
    """A model that says nothing is asked again a few times, and then the turn fails and says why; no empty answer is kept."""
    model = ScriptedModelClient(lambda _request: ScriptedReply())
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert "empty" in finished.error
        assert len(model.requests) == 3
        assert await of_type(session, AgentMessageEvent) == []


class BreakingModel(ScriptedModelClient):
    """A client whose answers just stop, after `said` or before any word."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said

    def stream(self, request: ModelRequest) -> ReplyStream:
        self.requests.append(request)
        partial = ModelReply((), provider="scripted", model="model-1", text=self.said, state="interrupted")
        return ReplyStream(self._pieces(), lambda: partial)

    async def _pieces(self) -> AsyncGenerator[ModelEvent, None]:
        await asyncio.sleep(
            0.001
        )  # a model without end would let nothing else run, the time limit of this test neither
        if self.said:
            yield TextDelta(self.said)


@pytest.mark.parametrize("said", ["", "I was about to"])
async def test_answers_that_just_stop_end_the_turn_with_a_reason(said: str) -> None:
    """A stream without an end is a fault of its client: asked again a few times, what came is kept, and the turn fails (A72)."""
    model = BreakingModel(said)
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "go")
        async with asyncio.timeout(60):
            await run.worker.until_idle()
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert finished.error.endswith("[model_stream_cut]")
        assert len(model.requests) < 10
        kept = [(event.content, event.state) for event in await of_type(session, AgentMessageEvent)]
        assert kept == ([(said, "interrupted")] if said else [])
