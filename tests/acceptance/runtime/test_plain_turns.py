"""The plain turn: what it appends, in which order, and what is left when it is cut (flows.md)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from kipu import open_manager
from kipu.context.policy import WindowPolicy
from kipu.errors import InputError
from kipu.events.boundary import CompactionEvent
from kipu.events.conversation import AgentMessageEvent, InstructionEvent, ToolCallEvent, UserMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import StopRequestedEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.model import TextDelta
from kipu.runtime.models.demo import CONTEXT_WINDOW_TOKENS, DemoModelClient
from kipu.runtime.models.pydantic_ai_client import open_provider_client
from kipu.runtime.observer import ModelNews
from kipu.runtime.turns.model_settings import policy_for
from kipu.runtime.turns.shown_window import call_of_turn, model_calls, replay
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeFailure, FakeProvider
from kipu.testing.validators import validate
from tests.acceptance.runtime.fakes import Runtime, runtime

MODEL = "openai-chat:some-model"
STEPS = ("say", "instruct", "compact", "pin", "rewind", "budget", "fork")


@dataclass
class Talk:
    """A session, a model behind real HTTP, and what was streamed."""

    run: Runtime
    session: Session
    provider: FakeProvider
    came: asyncio.Event = field(default_factory=asyncio.Event)
    pieces: list[str] = field(default_factory=list)

    @property
    def manager(self) -> SessionManager:
        return self.run.manager

    async def say(self, text: str) -> list[TurnFinishedEvent]:
        """Say something, and return how the turns ended that this began."""
        after = self.session.history.last_seq
        await self.run.say(self.session, text)
        await self.run.settled()
        return [event for event in await self.events() if isinstance(event, TurnFinishedEvent) and event.seq > after]

    async def ask(self, text: str, answer: FakeAnswer | FakeFailure) -> TurnFinishedEvent:
        self.provider.add(answer)
        return (await self.say(text))[-1]

    async def stop(self) -> None:
        turn_id = self.session.head.open_turn
        assert turn_id is not None
        await self.session.add_event(StopRequestedEvent(turn_id=turn_id))

    async def events(self) -> list[SessionEvent]:
        return await self.session.get_full_history()

    async def types(self) -> list[str]:
        return [event.event_type for event in await self.events()]

    async def answers(self) -> list[AgentMessageEvent]:
        return [event for event in await self.events() if isinstance(event, AgentMessageEvent)]

    async def assert_valid(self) -> None:
        for target in ("openai_chat", "anthropic", "neutral"):
            rendering = await self.session.render(target)
            assert validate(target, rendering.payload, may_end_with_model=True) == []

    async def assert_replays(self) -> None:
        for call in await model_calls(self.session):
            assert (await replay(self.session, call, store=self.manager.store)).matches


@asynccontextmanager
async def talking(*answers: FakeAnswer | FakeFailure) -> AsyncIterator[Talk]:
    with FakeProvider(answers) as provider:
        client: Any = open_provider_client(MODEL, base_url=provider.base_url, api_key="k", key_variable="THE_KEY")
        try:
            async with runtime(client) as run:
                talk = Talk(run, await run.session("cli:default"), provider)
                listening = asyncio.ensure_future(_listen(talk))
                try:
                    yield talk
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        finally:
            await client.aclose()


async def _listen(talk: Talk) -> None:
    with talk.run.feed.listen(talk.session.session_id) as listener:
        async for news in listener:
            if isinstance(news, ModelNews) and isinstance(news.event, TextDelta):
                talk.pieces.append(news.event.text)
                talk.came.set()


async def test_turn_appends_its_steps_in_order() -> None:
    """Message, turn, what the model is shown, its answer, the end: each step is appended before the next (C5, A24)."""
    async with talking(FakeAnswer("Good day.")) as talk:
        finished = (await talk.say("hello"))[0]
        assert await talk.types() == [
            "session_init", "user_message", "turn_started", "model_call", "agent_message", "turn_finished",
        ]  # fmt: skip
        assert (finished.outcome, "".join(talk.pieces)) == ("completed", "Good day.")
        answer = (await talk.answers())[0]
        assert (answer.content, answer.state, answer.seq) == ("Good day.", "complete", 5)
        assert answer.usage == {"input_tokens": 11, "output_tokens": 7}
        assert {event.turn_id for event in (await talk.events())[2:]} == {finished.turn_id}
        assert talk.session.head.waiting == ()
        assert talk.session.head.open_turn is None
        assert not talk.session.lock.in_use


async def test_turn_records_what_the_model_was_shown() -> None:
    """The model is sent the window whose range, policy, version and digest the log then has, and it renders again (C6)."""
    async with talking(FakeAnswer("One."), FakeAnswer("Two.")) as talk:
        await talk.say("first")
        await talk.say("second")
        call = (await model_calls(talk.session))[1]
        assert set(call.window) >= {"from", "to", "policy", "target", "renderer_version", "digest"}
        assert (call.window["target"], call.window["to"], call.model) == ("neutral", 8, MODEL)
        sent = talk.provider.asked[1].json()["messages"]
        assert [message["content"] for message in sent] == ["first", "One.", "second"]
        again = await replay(talk.session, call, store=talk.manager.store)
        assert [message["content"][0]["text"] for message in again.rendering.messages] == ["first", "One.", "second"]
        await talk.assert_replays()


async def test_replay_stays_true_after_everything_that_changes_windows() -> None:
    """Past calls render as they were after instruction, compaction, rewind, fork and another budget (C6, C8)."""
    async with talking(*(FakeAnswer(f"Answer {number}.") for number in range(12))) as talk:
        await talk.session.add_event(InstructionEvent(content="Be brief."))
        for number in range(3):
            await talk.say(f"question {number}")
        await talk.session.add_event(InstructionEvent(content="Be kind."))
        await talk.say("question 3")
        last = talk.session.history.last_seq
        await talk.session.add_event(CompactionEvent(from_seq=1, to_seq=8, summary="We began.", first_kept_seq=13))
        assert talk.session.history.last_seq > last
        await talk.say("question 4")
        await talk.session.rewind(turns=1)
        await talk.say("question 5")
        await talk.assert_replays()
        child = await talk.session.fork()
        assert [(await replay(child, call, store=talk.manager.store)).matches for call in await model_calls(child)] == [
            True
        ] * 6


@pytest.mark.parametrize("seed", range(8))
async def test_replay_stays_true_in_any_order_of_things(seed: int) -> None:
    """Whatever instructions, summaries, pins, rewinds, forks, jumps and budgets come in between, past calls render again (C6)."""
    chance = random.Random(seed)
    model: Any = DemoModelClient()
    policy = WindowPolicy(max_tokens=chance.choice([60, 150, 400]))
    async with await open_manager("memory://", policy=policy) as manager, runtime(model, manager=manager) as run:
        session = await run.session("cli:default")
        for number in range(24):
            last = session.history.last_seq
            step = chance.choices(STEPS, weights=[14, 2, 1, 1, 1, 1, 1])[0] if last > 20 else "say"
            if step == "say":
                words = "word " * chance.choice([2, 10, 60, 300])
                await run.say(session, words)
                await run.settled()
                ends = [event for event in await session.get_recent_events(1) if isinstance(event, TurnFinishedEvent)]
                assert [event.outcome for event in ends] == ["completed"]
            elif step == "instruct":
                await session.add_event(InstructionEvent(content=f"Be {number}."))
            elif step == "compact":
                summary = CompactionEvent(from_seq=1, to_seq=last - 10, summary="So far.", first_kept_seq=last - 9)
                await session.add_event(summary)
            elif step == "pin":
                await session.pin(chance.randint(2, last))
            elif step == "rewind":
                with suppress(InputError):
                    await session.rewind(turns=chance.randint(1, 3))
            elif step == "budget":
                await session.set_policy(WindowPolicy(max_tokens=chance.choice([60, 150, 400, 1000])))
            else:
                session = await session.fork()
        calls = await model_calls(session)
        replays = [await replay(session, call, store=manager.store) for call in calls]
        assert len(calls) > 3
        assert [call.seq for call, each in zip(calls, replays, strict=True) if not each.matches] == []


async def test_replay_notices_what_differs() -> None:
    """A digest that the log does not give is reported (C6)."""
    async with talking(FakeAnswer("One.")) as talk:
        await talk.say("hello")
        call = (await model_calls(talk.session))[0]
        other = call.model_copy(update={"window": {**call.window, "digest": "0" * 64}})
        assert not (await replay(talk.session, other, store=talk.manager.store)).matches


async def test_turns_are_found_by_number_or_id() -> None:
    """A turn is named by its number from either end, or by its id; others are refused."""
    async with talking(FakeAnswer("One."), FakeAnswer("Two.")) as talk:
        await talk.say("first")
        await talk.say("second")
        calls = await model_calls(talk.session)
        assert [call_of_turn(calls, turn).seq for turn in (1, 2, -1, -2, str(calls[0].turn_id))] == [4, 9, 9, 4, 4]
        for unknown in (0, 3, -3, "turn_x"):
            with pytest.raises(Exception, match="there is no turn"):
                call_of_turn(calls, unknown)


async def test_turn_keeps_a_partial_answer_when_it_is_cut() -> None:
    """Stopping the turn keeps what had come, ends it and leaves a valid history (C7)."""
    async with talking(FakeAnswer("Half of it is here", chunk_chars=4, hold_after=5)) as talk:
        running = asyncio.ensure_future(talk.say("tell me"))
        await talk.came.wait()
        await talk.stop()
        assert [finished.outcome for finished in await running] == ["cancelled"]
        answer = (await talk.answers())[0]
        assert answer.state == "interrupted"
        assert str(answer.content).startswith("".join(talk.pieces)[:4])
        assert not talk.session.lock.in_use
        await talk.assert_valid()
        talk.provider.release()
        assert (await talk.ask("go on", FakeAnswer("The rest."))).outcome == "completed"
        await talk.assert_valid()
        await talk.assert_replays()


async def test_turn_interrupted_before_anything_came_has_no_answer() -> None:
    """Where nothing had come there is no empty answer, and the message stays in the history."""
    async with talking(FakeAnswer("Never seen", hold_after=0)) as talk:
        running = asyncio.ensure_future(talk.say("tell me"))
        await asyncio.to_thread(talk.provider.held.wait)
        await talk.stop()
        assert [finished.outcome for finished in await running] == ["cancelled"]
        assert "agent_message" not in await talk.types()
        await talk.assert_valid()


async def test_turn_fails_with_a_clear_message_when_the_model_does() -> None:
    """A model's error ends the turn as failed, with its message and code in the log; the next turn works."""
    async with talking() as talk:
        finished = await talk.ask("hello", FakeFailure(401, "invalid key", "authentication_error"))
        assert finished.outcome == "failed"
        assert finished.error is not None
        assert "[model_auth]" in finished.error
        assert (await talk.ask("again", FakeAnswer("Now."))).outcome == "completed"
        await talk.assert_valid()


async def test_turn_climbs_the_ladder_when_the_window_is_refused() -> None:
    """A refused window is shown again more strictly, each call recorded; afterwards the policy is as before."""
    async with talking(FakeFailure(400, "roles must alternate"), FakeAnswer("Fine.")) as talk:
        assert (await talk.say("hello"))[0].outcome == "completed"
        ladders = [call.window["policy"]["ladder"] for call in await model_calls(talk.session)]
        assert ladders == ["normal", "strict"]
        assert talk.session.policy.ladder == "normal"
        await talk.assert_replays()


async def test_turn_ends_when_every_rung_is_refused() -> None:
    """A window that is refused in every form ends the turn as failed, after one call a rung."""
    async with talking(*[FakeFailure(400, "no")] * 9) as talk:
        finished = (await talk.say("hello"))[0]
        assert finished.outcome == "failed"
        assert len(talk.provider.asked) == 4


async def test_turn_shows_less_when_the_window_is_too_long() -> None:
    """Where the model says the window is too long, a smaller one is shown (A33)."""
    async with talking(FakeFailure(413, "too large", "request_too_large"), FakeAnswer("Fine.")) as talk:
        budget = talk.session.policy.max_tokens
        assert (await talk.say("hello"))[0].outcome == "completed"
        budgets = [call.window["policy"]["max_tokens"] for call in await model_calls(talk.session)]
        assert budgets[0] == budget
        assert 0 < budgets[1] <= budget // 2


async def test_turn_answers_calls_that_nobody_offered() -> None:
    """A call that a model makes without any tool is kept with a result that says so, so that the history stays valid (A2)."""
    answer = FakeAnswer("I will look.", calls=[FakeCall("c1", "search", '{"q": "x"}'), FakeCall("c1", "bad", "{oops")])
    async with talking(answer) as talk:
        await talk.say("look it up")
        calls = [event for event in await talk.events() if isinstance(event, ToolCallEvent)]
        assert [call.provider_call_id for call in calls] == ["c1", "c1"]
        assert len({call.tool_call_id for call in calls}) == 2
        await talk.assert_valid()
        await talk.ask("and now?", FakeAnswer("Nothing found."))
        await talk.assert_valid()
        await talk.assert_replays()


async def test_turn_left_open_by_a_dead_process_is_finished_first() -> None:
    """An open turn is taken over: its calls are closed, its message is answered, then come the others (C5, C14)."""
    async with talking(FakeAnswer("Late, but here.")) as talk:
        seq = (await talk.session.add_event(UserMessageEvent(content="hello", queued=True))).seq
        async with talk.session.holding():
            call = ToolCallEvent(tool_name="read", tool_call_id="t1", turn_id="turn_dead")
            await talk.session.add_events([TurnStartedEvent(turn_id="turn_dead", consumes=[seq]), call])
        talk.run.worker.wake(talk.session.session_id)
        await talk.run.settled_soon(talk.session)
        assert (await talk.types())[-5:] == [
            "turn_resumed", "tool_result", "model_call", "agent_message", "turn_finished",
        ]  # fmt: skip
        assert (await talk.events())[-1].turn_id == "turn_dead"
        await talk.assert_valid()


async def test_turn_that_was_answered_is_only_ended() -> None:
    """An open turn that has its answer already is ended, not answered twice (C5)."""
    async with talking() as talk:
        seq = (await talk.session.add_event(UserMessageEvent(content="hello", queued=True))).seq
        async with talk.session.holding():
            started = TurnStartedEvent(turn_id="turn_dead", consumes=[seq])
            await talk.session.add_events([started, AgentMessageEvent(content="Hi.", turn_id="turn_dead")])
        talk.run.worker.wake(talk.session.session_id)
        await talk.run.settled_soon(talk.session)
        assert (await talk.types())[-2:] == ["turn_resumed", "turn_finished"]
        assert talk.provider.asked == []


async def test_turn_uses_the_settings_of_the_session() -> None:
    """Temperature and such are settings of the session: sent to the model, and recorded with the call (B37)."""
    async with talking(FakeAnswer("Fine.")) as talk:
        await talk.session.set_metadata(temperature=0.25, topic="birds")
        await talk.say("hello")
        assert talk.provider.asked[0].json()["temperature"] == 0.25
        assert (await model_calls(talk.session))[0].settings == {"temperature": 0.25}


def test_policy_stays_within_the_models_window() -> None:
    """The token budget leaves room in the model's own window, and never grows beyond the policy's (C28)."""
    assert policy_for(DemoModelClient()).max_tokens < CONTEXT_WINDOW_TOKENS
