"""Whole turns over the vendors' own client libraries and a provider that errs: what is recorded, and what was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.runtime.models.pydantic_ai_client import open_provider_client
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeFailure, FakeProvider, Scripted
from kipu.testing.fake_provider_requests import answered_texts, asked_texts, newest_results
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, of_type, runtime

CHAT = "openai-chat:some-model"
RESPONSES = "openai-responses:gpt-6-luna"
ANTHROPIC = "anthropic:claude-sonnet-5-5"
ALL = [CHAT, RESPONSES, ANTHROPIC]
OVERLOADED = FakeFailure(529, "Overloaded", "overloaded_error", "overloaded_error")
LOOK = FakeCall("call_0", "look", '{"at": 1}')
LONG = json.dumps({"at": "a" * 80})


@asynccontextmanager
async def turns_over(
    name: str, answers: Sequence[Scripted] = (), *, script: Scripted | None = None, **parts: Any
) -> AsyncIterator[tuple[Runtime, FakeProvider]]:
    with FakeProvider(answers, script=script) as provider:
        url = provider.root_url if name.startswith("anthropic") else provider.base_url
        client: Any = open_provider_client(name, base_url=url, api_key="key-of-a-test")

        async def look(arguments: Any, _context: Any) -> str:
            return f"saw {arguments['at']}"

        schema = {"type": "object", "properties": {"at": {}}, "required": ["at"], "additionalProperties": False}
        tool = FunctionTool("look", look, {"parameters": schema})
        try:
            async with runtime(client, tool, **parts) as run:
                yield run, provider
        finally:
            await client.aclose()


async def told(run: Runtime, text: str = "go") -> tuple[list[str], list[tuple[str, bool]], list[str]]:
    """Say something; return the answers' texts, the results with whether they are errors, and how the turn went."""
    session = await run.session()
    await run.say(session, text)
    await run.settled()
    answers = [str(event.content) for event in await of_type(session, AgentMessageEvent)]
    results = [(str(event.result), event.is_error) for event in await of_type(session, ToolResultEvent)]
    return answers, results, [event.outcome for event in await of_type(session, TurnFinishedEvent)]


@pytest.mark.parametrize("name", ALL)
async def test_turn_over_http_survives_every_passing_fault(name: str) -> None:
    """Errors, drops and overloads on the way do not end a turn, and every body that was sent is valid (A2, A35, C7)."""
    faults: list[Scripted] = [
        FakeFailure(500, "oops", "api_error"),
        FakeFailure(429, "slow", "rate_limit_error", headers={"retry-after-ms": "1"}),
        FakeAnswer("Looking.", calls=[LOOK]),
        FakeFailure(0),
        FakeAnswer("never", fail_after=1, failure=OVERLOADED),
        FakeAnswer("It is there."),
    ]
    async with turns_over(name, faults) as (run, provider):
        answers, results, outcomes = await told(run)
        assert provider.violations() == []
        assert len(provider.asked) == 6
    assert (answers, results, outcomes) == (["Looking.", "It is there."], [("saw 1", False)], ["completed"])


@pytest.mark.parametrize("name", ALL)
async def test_turn_over_http_tells_the_model_of_its_bad_calls(name: str) -> None:
    """Arguments that do not parse, break the schema or name no tool are results that the model sees (A24, A25, C29)."""
    bad = [
        FakeCall("call_0", "look", '{"at": '),
        FakeCall("call_0", "look", '{"somewhere": 1}'),
        FakeCall("call_0", "no_such_tool", "{}"),
        FakeCall("call_0", "look", '{"at": 2}'),
        FakeCall("", "look", '{"at": 3}'),
    ]
    async with turns_over(name, [FakeAnswer(calls=bad), FakeAnswer("I see.")]) as (run, provider):
        answers, results, outcomes = await told(run)
        calls = await of_type(await run.session(), ToolCallEvent)
        assert provider.violations() == []
        shown = newest_results(provider.asked[1].json())
    assert [is_error for _, is_error in results] == [True, True, True, False, False]
    assert len({call.tool_call_id for call in calls}) == 5
    assert [said for _, said in shown][3:] == ["saw 2", "saw 3"]
    assert (answers[-1], outcomes) == ("I see.", ["completed"])


@pytest.mark.parametrize("name", ALL)
async def test_turn_over_http_asks_again_after_an_empty_answer_or_a_cut_call(name: str) -> None:
    """An answer of nothing and a call that was cut are asked for again, and leave no call without a result (A2, C5)."""
    cut = FakeAnswer(calls=[FakeCall("call_0", "look", LONG, cut=True)])
    async with turns_over(name, [cut, FakeAnswer(), FakeAnswer("At last.")]) as (run, provider):
        answers, results, outcomes = await told(run)
        assert provider.violations() == []
        assert len({request.body for request in provider.asked}) == 1
    assert (answers, results, outcomes) == (["At last."], [], ["completed"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "refused", [FakeFailure(400, "tool_use ids were found", "invalid_request_error"), FakeFailure(413, "too large")]
)
async def test_turn_over_http_climbs_to_windows_that_are_accepted(name: str, refused: FakeFailure) -> None:
    """A refused window is followed by a stricter or shorter one until the provider takes it, each of them valid (C7)."""
    async with turns_over(name, [FakeAnswer(calls=[LOOK]), refused, refused, FakeAnswer("Fine.")]) as (run, provider):
        answers, _, outcomes = await told(run)
        assert provider.violations() == []
        assert len(provider.asked) == 4
    assert (answers[-1], outcomes) == ("Fine.", ["completed"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("status", [401, 402])
async def test_turn_over_http_ends_at_once_where_asking_is_no_use(name: str, status: int) -> None:
    """A wrong key or an empty account fails the turn with the reason, after one request; the next turn goes on (A35)."""
    failure = FakeFailure(status, "no entry", "authentication_error")
    async with turns_over(name, [failure, FakeAnswer("Welcome.")]) as (run, provider):
        _, _, outcomes = await told(run)
        assert len(provider.asked) == 1
        assert outcomes == ["failed"]
        answers, _, outcomes = await told(run, "again")
        assert provider.violations() == []
    assert (answers, outcomes) == (["Welcome."], ["failed", "completed"])


@pytest.mark.parametrize("name", ALL)
async def test_turns_over_http_of_many_sessions_keep_to_themselves(name: str) -> None:
    """Twenty sessions at once, two turns each with the same provider ids, get their own answers and valid windows (A40, A65)."""

    def script(body: dict[str, Any]) -> FakeAnswer:
        results = newest_results(body)
        mine = asked_texts(body)[-1]
        if results:
            return FakeAnswer(f"{mine}: {results[0][1]} after {len(answered_texts(body))} answers")
        return FakeAnswer("Looking.", calls=[FakeCall("call_0", "look", json.dumps({"at": mine}))])

    async with turns_over(name, script=script) as (run, provider):
        sessions = [await run.session(f"test:{number}") for number in range(20)]
        for turn in range(2):
            await asyncio.gather(*(run.say(session, f"{turn}-{n}") for n, session in enumerate(sessions)))
            await run.settled()
        said = [[str(e.content) for e in await of_type(session, AgentMessageEvent)] for session in sessions]
        assert provider.violations() == []
        assert len(provider.asked) == 80
    assert said == [
        ["Looking.", f"0-{n}: saw 0-{n} after 1 answers", "Looking.", f"1-{n}: saw 1-{n} after 3 answers"]
        for n in range(20)
    ]
