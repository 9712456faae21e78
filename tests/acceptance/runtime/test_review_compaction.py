"""Edges of compaction: what a summary is told, and what a summariser that misbehaves costs."""

from __future__ import annotations

import asyncio
from typing import Any

from kipu.events.boundary import CompactionEvent
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.runtime.turns.compaction import Compaction
from kipu.runtime.turns.model_step import StreamLimits
from kipu.testing.scripted_model import ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import of_type, runtime
from tests.acceptance.runtime.test_compaction import SMALL, AiModelClient, chatty, is_summary


async def arrive(session: Session, text: str) -> int:
    return (await session.add_event(UserMessageEvent(content=f"{text} " + "ask " * 60, queued=True))).seq


async def answer(session: Session, *consumes: int) -> None:
    async with session.turn(consumes=consumes) as turn:
        await turn.add_event(AgentMessageEvent(content="answer " + "say " * 60))


def told(model: AiModelClient) -> list[str]:
    """What the summariser was given, call by call."""
    return [request.messages[1]["content"][0]["text"] for request in model.requests if is_summary(request)]


async def test_message_that_got_no_turn_is_in_no_summary() -> None:
    """What was taken back, or still waits, was never part of the conversation that is summarised (A61, C12)."""
    model = chatty()
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        cancelled = await arrive(session, "delete-everything")
        await session.add_event(MessageSettledEvent(seqs=[cancelled], reason="cancelled"))
        waiting = await arrive(session, "later-please")
        for number in range(12):
            await answer(session, await arrive(session, f"question-{number}"))
        await Compaction(session, model).now()
        (text,) = told(model)
        assert "question-0 " in text
        assert "delete-everything" not in text
        assert "later-please" not in text
        assert session.head.waiting == (waiting,)


async def test_each_message_is_summarised_or_shown_and_not_both() -> None:
    """A message counts where a turn took it: over two summaries each one is told once, none twice, and none is lost (A61, A68)."""
    model = chatty()
    async with await open_manager("memory://", policy=SMALL) as manager:
        session = await manager.get_or_create("test:1")
        compaction = Compaction(session, model)
        early = await arrive(session, "early-bird")
        for number in range(24):
            await answer(session, await arrive(session, f"question-{number}."))
            if number == 11:
                await compaction.now()
                await answer(session, early)
        await compaction.now()
        window = str(await session.get_context_for_llm("neutral"))
        for name in ["early-bird", *(f"question-{number}." for number in range(24))]:
            places = [*told(model), window]
            assert sum(name in place for place in places) == 1, name
        assert window.count("early-bird") + sum(text.count("early-bird") for text in told(model)) == 1


async def test_summariser_that_says_nothing_holds_no_turn_for_ever() -> None:
    """A model that never answers the question for a summary is given up like any silent model; the turn goes on (C5)."""
    never = asyncio.Event()

    def reply(request: ModelRequest) -> Any:
        return ScriptedReply("never", before=never.wait) if is_summary(request) else "word " * 120

    model = AiModelClient(reply)
    async with (
        await open_manager("memory://", policy=SMALL) as manager,
        runtime(model, manager=manager, stream_limits=StreamLimits(silence_s=0.05)) as run,
    ):
        session = await run.session()
        for number in range(20):
            await run.say(session, f"message {number} " + "ask " * 40)
            await asyncio.wait_for(run.worker.until_idle(), 60)
        assert told(model), "it was asked"
        assert await of_type(session, CompactionEvent) == []
        assert {event.outcome for event in await of_type(session, TurnFinishedEvent)} == {"completed"}


async def test_summariser_that_breaks_costs_no_turn() -> None:
    """Whatever goes wrong while a summary is made, nothing changes and the turn goes on (A60)."""

    async def break_down() -> None:
        raise RuntimeError("a fault of the client")

    def reply(request: ModelRequest) -> Any:
        return ScriptedReply("never", before=break_down) if is_summary(request) else "word " * 120

    model = AiModelClient(reply)
    async with await open_manager("memory://", policy=SMALL) as manager, runtime(model, manager=manager) as run:
        session = await run.session()
        for number in range(20):
            await run.say(session, f"message {number} " + "ask " * 40)
            await run.settled()
        assert told(model), "it was asked"
        assert {event.outcome for event in await of_type(session, TurnFinishedEvent)} == {"completed"}


async def test_summary_that_fills_the_window_is_none() -> None:
    """A model that will not be brief costs nobody the conversation: the window goes on without its summary (A33, A60, C11)."""
    model = chatty("summary " * 4_900)
    async with await open_manager("memory://", policy=SMALL) as manager, runtime(model, manager=manager) as run:
        session = await run.session()
        for number in range(30):
            await run.say(session, f"question-{number} " + "ask " * 60)
            await run.settled()
        assert await of_type(session, CompactionEvent) == []
        assert session.history.window.tokens <= SMALL.max_tokens
        asked = [request for request in model.requests if not is_summary(request)]
        assert "question-28 " in str(asked[-1].messages)  # and not only the newest message
        summaries = [request.settings["max_tokens"] for request in model.requests if is_summary(request)]
        assert 0 < max(summaries) < SMALL.max_tokens / 2
        assert {event.outcome for event in await of_type(session, TurnFinishedEvent)} == {"completed"}
