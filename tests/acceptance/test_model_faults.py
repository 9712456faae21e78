"""What providers do wrong, through the vendors' own client libraries: how it ends, what is kept, and whether to ask again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kipu.errors import (
    ModelContextOverflowError,
    ModelError,
    ModelQuotaError,
    ModelRateLimitedError,
    ModelStreamCutError,
    ModelUnavailableError,
    ModelUnreachableError,
)
from kipu.ports.model import ModelReply, ModelRequest, ToolCallDelta
from kipu.runtime.models.pydantic_ai_client import PydanticAIClient, open_provider_client
from kipu.runtime.models.retrying import is_useful, retry_delay_s
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeFailure, FakeProvider, Scripted

CHAT = "openai-chat:some-model"
RESPONSES = "openai-responses:gpt-6-luna"
ANTHROPIC = "anthropic:claude-sonnet-5-5"
ALL = [CHAT, RESPONSES, ANTHROPIC]
WINDOW = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
TOOLS = [{"name": "run"}]
OVERLOADED = FakeFailure(529, "Overloaded", "overloaded_error", "overloaded_error")
LONG = json.dumps({"cmd": "echo " + "a" * 60})


def lowest() -> float:
    return 0.0


@asynccontextmanager
async def asking(name: str, *scripted: Scripted) -> AsyncIterator[tuple[FakeProvider, PydanticAIClient]]:
    with FakeProvider(scripted) as provider:
        url = provider.root_url if name.startswith("anthropic") else provider.base_url
        client = open_provider_client(name, base_url=url, api_key="key-of-a-test")
        try:
            yield provider, client
        finally:
            await client.aclose()


def request_of(client: PydanticAIClient, **settings: Any) -> ModelRequest:
    return ModelRequest(client.name, WINDOW, settings=settings, tools=TOOLS)


async def outcome_of(client: PydanticAIClient, **settings: Any) -> tuple[ModelError | None, ModelReply]:
    """Return the error of one call, and what has come of its answer."""
    stream = client.stream(request_of(client, **settings))
    try:
        async with stream:
            _ = [event async for event in stream]
    except ModelError as error:
        return error, stream.partial()
    return None, stream.partial()


async def asked_until_answered(client: PydanticAIClient) -> tuple[ModelReply | ModelError, list[float]]:
    """Ask as a loop does, only that it does not wait; return how it ended and the waits."""
    waits: list[float] = []
    while True:
        error, reply = await outcome_of(client)
        if error is None:
            return reply, waits
        delay_s = retry_delay_s(error, len(waits) + 1, random=lowest, waited_s=sum(waits), has_said=is_useful(reply))
        if delay_s is None:
            return error, waits
        waits.append(delay_s)


@pytest.mark.parametrize("name", ALL)
async def test_model_cut_in_mid_call_keeps_no_half_call(name: str) -> None:
    """A connection that drops inside a call's arguments leaves the text, and neither that call nor those before it (A2, C5)."""
    calls = [FakeCall("c1", "run", LONG), FakeCall("c2", "run", LONG, cut=True)]
    async with asking(name, FakeAnswer("Running.", calls=calls)) as (_, client):
        error, partial = await outcome_of(client)
    assert isinstance(error, ModelStreamCutError)
    assert (partial.text, partial.tool_calls, partial.state) == ("Running.", (), "interrupted")
    assert all(part["type"] != "tool_call" for part in partial.content)


@pytest.mark.parametrize("name", ALL)
async def test_model_that_gives_up_in_mid_stream_says_so_in_its_own_format(name: str) -> None:
    """An overload inside a stream is the passing fault that it is outside of one (C5)."""
    broken = FakeAnswer("Half of it is here", fail_after=6, failure=OVERLOADED)
    async with asking(name, broken) as (_, client):
        error, partial = await outcome_of(client)
    assert isinstance(error, ModelUnavailableError)
    assert "Overloaded" in str(error)
    assert partial.text
    assert retry_delay_s(error, 1, random=lowest, has_said=is_useful(partial)) is None
    assert retry_delay_s(error, 1, random=lowest) == 0.5


@pytest.mark.parametrize("name", ALL)
async def test_model_that_fails_a_few_times_is_asked_until_it_answers(name: str) -> None:
    """Passing faults of every kind before the first word end in one answer, after growing waits (A72)."""
    faults: list[Scripted] = [
        FakeFailure(500, "oops", "api_error"),
        FakeFailure(0),
        FakeFailure(429, "slow down", "rate_limit_error", headers={"retry-after": "7"}),
        FakeAnswer("never seen", fail_after=1, failure=OVERLOADED),
        FakeFailure(529, "Overloaded", "overloaded_error"),
    ]
    async with asking(name, *faults, FakeAnswer("At last.")) as (provider, client):
        reply, waits = await asked_until_answered(client)
        assert len(provider.asked) == 6
        assert len({request.body for request in provider.asked}) == 1
    assert isinstance(reply, ModelReply)
    assert reply.text == "At last."
    assert waits == [0.5, 1, 7, 4, 8]


@pytest.mark.parametrize("name", ALL)
async def test_model_that_fails_for_ever_is_given_up(name: str) -> None:
    """A dead provider is asked a bounded number of times, then its error stands (A72)."""
    busy = FakeFailure(503, "busy", "api_error")
    async with asking(name, *([busy] * 20)) as (provider, client):
        error, waits = await asked_until_answered(client)
        assert len(provider.asked) == 6
    assert isinstance(error, ModelUnavailableError)
    assert waits == [0.5, 1, 2, 4, 8]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("scripted", "expected"),
    [
        (FakeFailure(400, "bad request"), ModelError),
        (FakeFailure(401, "bad key", "authentication_error"), ModelError),
        (FakeFailure(402, "no money", "billing_error"), ModelQuotaError),
        (FakeFailure(413, "too large", "request_too_large"), ModelContextOverflowError),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_model_that_refuses_is_asked_once(name: str, scripted: FakeFailure, expected: type[ModelError]) -> None:
    """What was refused is not sent again: neither the client nor the rule of retries does (A72)."""
    async with asking(name, scripted, FakeAnswer("a retry that nobody asked for")) as (provider, client):
        error, waits = await asked_until_answered(client)
        assert len(provider.asked) == 1
    assert isinstance(error, expected)
    assert waits == []


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [("retry-after", "17", 17), ("retry-after-ms", "1500", 1.5), ("retry-after", "x", None)],
)
async def test_model_that_asks_to_wait_says_how_long(name: str, header: str, value: str, seconds: float | None) -> None:
    """The wait that a provider asks for is read in each of its forms, and one that makes no sense is none."""
    busy = FakeFailure(429, "slow down", "rate_limit_error", headers={header: value})
    async with asking(name, busy) as (_, client):
        error, _partial = await outcome_of(client)
    assert isinstance(error, ModelRateLimitedError)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize("name", ALL)
async def test_model_that_never_answers_ends_by_its_time_limit(name: str) -> None:
    """A provider that takes the request and says nothing is unreachable after `timeout_s`, and worth another try (A72)."""
    async with asking(name, FakeAnswer("too late", hold_after=-1)) as (provider, client):
        error, partial = await outcome_of(client, timeout_s=0.2)
        assert await asyncio.to_thread(provider.abandoned.wait, 60)
    assert isinstance(error, ModelUnreachableError)
    assert error.retryable
    assert (partial.text, partial.state) == ("", "interrupted")


@pytest.mark.parametrize("name", ALL)
async def test_model_that_never_answers_can_be_interrupted(name: str) -> None:
    """A word ends the wait for a provider that has not even sent a header, and frees the connection (A44, C13)."""
    async with asking(name, FakeAnswer("too late", hold_after=-1)) as (provider, client):
        stream = client.stream(request_of(client))

        async def read() -> list[Any]:
            return [event async for event in stream]

        reader = asyncio.create_task(read())
        assert await asyncio.to_thread(provider.held.wait, 60)
        stream.interrupt()
        (reply,) = await reader
        assert await asyncio.to_thread(provider.abandoned.wait, 60)
    assert (reply.content, reply.state) == ((), "interrupted")


async def dripped(name: str, *, slowness: float) -> tuple[ModelError | None, ModelReply]:
    """Return what becomes of an answer whose pieces come one by one, well within the limit."""
    async with asking(name, FakeAnswer("one two three four five six", drip_s=0.07 * slowness)) as (_, client):
        return await outcome_of(client, timeout_s=0.6 * slowness)


@pytest.mark.parametrize("name", ALL)
async def test_model_that_drips_is_read_to_its_end(name: str) -> None:
    """A slow stream is no dead one: the limit is on silence, not on the whole answer (A72)."""
    error, reply = await dripped(name, slowness=1)
    if error is not None:  # a machine that stood still meanwhile, which is silence too, is given more time
        error, reply = await dripped(name, slowness=10)
    assert error is None
    assert (reply.text, reply.state) == ("one two three four five six", "complete")


@pytest.mark.parametrize("name", ALL)
async def test_model_whose_call_never_ends_stops_at_a_word(name: str) -> None:
    """Arguments without an end can be ended by their reader, and no half call is left (A2, A44)."""
    endless = FakeAnswer("Running.", calls=[FakeCall("c", "run", '{"a": [', endless=True)])
    async with asking(name, endless) as (provider, client):
        stream = client.stream(request_of(client))
        pieces = 0
        async with stream:
            async for event in stream:
                pieces += isinstance(event, ToolCallDelta)
                if pieces == 50:
                    stream.interrupt()
        partial = stream.partial()
        assert await asyncio.to_thread(provider.abandoned.wait, 60)
    assert (partial.text, partial.tool_calls, partial.state) == ("Running.", (), "interrupted")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("arguments", ["", "[1, 2]", '"text"', "null", '{"a": 1} {"b": 2}', '{"a": NaN}', "\u0000"])
async def test_model_arguments_of_any_form_are_kept(name: str, arguments: str) -> None:
    """Arguments that are no JSON object are kept as they came, and none are an object without members (A2)."""
    async with asking(name, FakeAnswer(calls=[FakeCall("c", "run", arguments)])) as (_, client):
        error, reply = await outcome_of(client)
    assert error is None
    (call,) = reply.tool_calls
    assert call.get("raw", "") == arguments
    assert ("input" in call) == (arguments == "")
