"""Model clients against a provider that speaks real HTTP, through the vendors' own client libraries."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kipu.errors import (
    BlobNotFoundError,
    ConfigurationError,
    ModelAnswerError,
    ModelAuthError,
    ModelContextOverflowError,
    ModelError,
    ModelNotFoundError,
    ModelQuotaError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelStreamCutError,
    ModelUnavailableError,
    ModelUnreachableError,
)
from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta
from kipu.runtime.models.pydantic_ai_client import PydanticAIClient, open_provider_client
from kipu.testing.fake_provider import FakeAnswer, FakeCall, FakeFailure, FakeProvider
from kipu.testing.validators import validate

CHAT = "openai-chat:some-model"
RESPONSES = "openai-responses:gpt-6-luna"
ANTHROPIC = "anthropic:claude-sonnet-5-5"
ALL = [CHAT, RESPONSES, ANTHROPIC]
KEY = "key-of-the-test-account"
SIGNATURE = 'EqQBCkYIBxgCKkD+/zig==\u00e9 \\" bytes'


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def tool_results(*results: tuple[str, str, str, bool]) -> dict[str, Any]:
    content = [
        {
            "type": "tool_result",
            "id": call_id,
            "name": name,
            "content": [{"type": "text", "text": text}],
            "is_error": bad,
        }
        for call_id, name, text, bad in results
    ]
    return {"role": "tool", "content": content}


@asynccontextmanager
async def client_of(provider: FakeProvider, name: str) -> AsyncIterator[PydanticAIClient]:
    url = provider.root_url if name.startswith("anthropic") else provider.base_url
    client = open_provider_client(name, base_url=url, api_key=KEY, key_variable="THE_KEY")
    try:
        yield client
    finally:
        await client.aclose()


async def events_of(client: PydanticAIClient, *messages: dict[str, Any], **more: Any) -> list[ModelEvent]:
    async with client.stream(ModelRequest(client.name, messages, **more)) as stream:
        return [event async for event in stream]


async def reply_of(client: PydanticAIClient, *messages: dict[str, Any], **more: Any) -> ModelReply:
    reply = (await events_of(client, *messages, **more))[-1]
    assert isinstance(reply, ModelReply)
    return reply


async def failure_of(name: str, scripted: FakeAnswer | FakeFailure) -> ModelError:
    with FakeProvider([scripted, FakeAnswer("a retry that nobody asked for")]) as provider:
        async with client_of(provider, name) as client:
            with pytest.raises(ModelError) as caught:
                await events_of(client, user("hi"))
        assert len(provider.asked) == 1
    return caught.value


@pytest.mark.parametrize("name", ALL)
async def test_model_streams_text_in_pieces_and_ends_with_the_whole_reply(name: str) -> None:
    """The deltas, joined, are the reply's text, in any script, and usage comes with it (A3)."""
    text = "Los nudos guardan cuentas. 绳结记事 🪢."
    with FakeProvider([FakeAnswer(text, input_tokens=100, cached_tokens=60, output_tokens=9)]) as provider:
        async with client_of(provider, name) as client:
            *deltas, reply = await events_of(client, user("hola"))
    assert isinstance(reply, ModelReply)
    assert len(deltas) > 3
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text == reply.text
    assert reply.content == ({"type": "text", "text": text},)
    assert (reply.state, reply.finish_reason) == ("complete", "stop")
    assert reply.usage.as_json() == {"input_tokens": 100, "output_tokens": 9, "cached_input_tokens": 60}
    assert f"{reply.provider}:{reply.model}" in {
        "openai:some-model",
        "openai:gpt-6-luna",
        "anthropic:claude-sonnet-5-5",
    }


@pytest.mark.parametrize("name", ALL)
async def test_model_streams_parallel_tool_calls_also_with_one_id_for_all(name: str) -> None:
    """Each call of an answer arrives whole and in order, though their ids repeat and one's arguments do not parse (A23, A25)."""
    calls = [
        FakeCall("call_0", "read", '{"path":"é.txt"}'),
        FakeCall("call_0", "list", "{}"),
        FakeCall("c", "x", '{"a":'),
    ]
    with FakeProvider([FakeAnswer("Reading.", calls=calls)]) as provider:
        async with client_of(provider, name) as client:
            *deltas, reply = await events_of(client, user("read"), tools=[{"name": "read"}])
    assert isinstance(reply, ModelReply)
    assert list(reply.tool_calls) == [
        {"type": "tool_call", "id": "call_0", "name": "read", "input": {"path": "é.txt"}},
        {"type": "tool_call", "id": "call_0", "name": "list", "input": {}},
        {"type": "tool_call", "id": "c", "name": "x", "raw": '{"a":'},
    ]
    streamed = ["", "", ""]
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            streamed[delta.index] += delta.arguments
    assert streamed == [call.arguments for call in calls]


@pytest.mark.parametrize(("name", "signed"), [(CHAT, False), (RESPONSES, True), (ANTHROPIC, True)])
async def test_model_gets_its_reasoning_back_byte_for_byte(name: str, *, signed: bool) -> None:
    """Reasoning and its seal, kept as JSON, go back to the model that made them unchanged (C28)."""
    thought = "First, the knots.\n\n  二 "
    answer = FakeAnswer(
        "Done.", reasoning=thought, signature=SIGNATURE if signed else "", calls=[FakeCall("k1", "tie")]
    )
    with FakeProvider([answer, FakeAnswer("ok")]) as provider:
        async with client_of(provider, name) as client:
            *deltas, first = await events_of(client, user("hi"))
            assert isinstance(first, ModelReply)
            kept = json.loads(json.dumps(list(first.content)))
            await events_of(
                client, user("hi"), {"role": "assistant", "content": kept}, tool_results(("k1", "tie", "1", False))
            )
        sent = provider.asked[1].json()
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == thought == first.reasoning
    if name == CHAT:
        assert sent["messages"][1]["reasoning_content"] == thought
    elif name == RESPONSES:
        item = next(item for item in sent["input"] if item.get("type") == "reasoning")
        assert (item["encrypted_content"], item["summary"][0]["text"]) == (SIGNATURE, thought)
    else:
        assert sent["messages"][1]["content"][0] == {"type": "thinking", "thinking": thought, "signature": SIGNATURE}


async def test_model_gets_its_redacted_reasoning_back() -> None:
    """Reasoning that nobody may read is kept and sent back as it came (C28)."""
    with FakeProvider([FakeAnswer("Done.", redacted="sealed+/=="), FakeAnswer("ok")]) as provider:
        async with client_of(provider, ANTHROPIC) as client:
            first = await reply_of(client, user("hi"))
            await events_of(client, user("hi"), {"role": "assistant", "content": list(first.content)}, user("go on"))
        sent = provider.asked[1].json()
    assert sent["messages"][1]["content"][0] == {"type": "redacted_thinking", "data": "sealed+/=="}


@pytest.mark.parametrize(
    ("maker", "other"), [(ANTHROPIC, CHAT), (ANTHROPIC, "anthropic:claude-haiku-5-5"), (RESPONSES, ANTHROPIC)]
)
async def test_model_never_sees_the_reasoning_of_another(maker: str, other: str) -> None:
    """After a change of provider or model neither seal nor thought of the old one is sent, and the rest stays (C28)."""
    with FakeProvider(
        [FakeAnswer("Visible.", reasoning="a secret thought", signature=SIGNATURE), FakeAnswer("ok")]
    ) as provider:
        async with client_of(provider, maker) as client:
            first = await reply_of(client, user("hi"))
        async with client_of(provider, other) as client:
            await events_of(client, user("hi"), {"role": "assistant", "content": list(first.content)}, user("go on"))
        body = provider.asked[1].body.decode()
    assert "Visible." in body
    assert "a secret thought" not in body
    assert "EqQBCkYIBxgCKkD" not in body


async def test_model_of_another_account_gets_no_sealed_reasoning() -> None:
    """What one key's account sealed is not sent with another key, for that account would refuse it (C28)."""
    with FakeProvider([FakeAnswer("Visible.", reasoning="t", signature=SIGNATURE), FakeAnswer("ok")]) as provider:
        async with client_of(provider, RESPONSES) as client:
            first = await reply_of(client, user("hi"))
        stranger = open_provider_client(RESPONSES, base_url=provider.base_url, api_key="another-key")
        await events_of(stranger, user("hi"), {"role": "assistant", "content": list(first.content)}, user("go on"))
        await stranger.aclose()
        sent = provider.asked[1].json()
    assert [item for item in sent["input"] if item.get("type") == "reasoning"] == []


async def test_model_is_sent_the_window_one_to_one_by_anthropics_client() -> None:
    """System, media, calls and results arrive in their places, with errors marked (A24, C6)."""
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\nfake").decode()
    window: list[dict[str, Any]] = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "media", "media_type": "image/png", "data": picture, "size": 12},
                {"type": "media", "media_type": "image/png", "blob": "ab" * 32, "size": 3},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_call", "id": "t1", "name": "look", "input": {"at": [1, None]}},
                {"type": "tool_call", "id": "t2", "name": "look", "input": {}},
            ],
        },
        tool_results(("t1", "look", "a knot", False), ("t2", "look", "boom", True)),
        user("and?"),
    ]

    async def read_blob(digest: str) -> bytes:
        return bytes.fromhex(digest[:6])

    tools = [
        {
            "name": "look",
            "description": "Look.",
            "parameters": {"type": "object", "properties": {"at": {"type": "array"}}},
        }
    ]
    with FakeProvider([FakeAnswer("ok"), FakeAnswer("ok")]) as provider:
        async with client_of(provider, ANTHROPIC) as client:
            for _ in range(2):
                await events_of(client, *window, tools=tools, read_blob=read_blob, settings={"max_tokens": 99})
        first, second = provider.asked
    sent = first.json()
    assert first.body == second.body
    assert sent["system"] == "Be brief." or sent["system"][0]["text"] == "Be brief."
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    asked, answered, told = (message["content"] for message in sent["messages"])
    assert [part["type"] for part in asked] == ["text", "image", "image"]
    assert [part["source"]["data"] for part in asked[1:]] == [picture, base64.b64encode(b"\xab\xab\xab").decode()]
    assert [(part["type"], part.get("id")) for part in answered] == [
        ("text", None),
        ("tool_use", "t1"),
        ("tool_use", "t2"),
    ]
    assert answered[1]["input"] == {"at": [1, None]}
    assert [(part["type"], part.get("tool_use_id"), part.get("is_error")) for part in told] == [
        ("tool_result", "t1", False),
        ("tool_result", "t2", True),
        ("text", None, None),
    ]
    assert (sent["max_tokens"], sent["tools"][0]["name"]) == (99, "look")


@pytest.mark.parametrize(
    ("name", "target"), [(CHAT, "openai_chat"), (RESPONSES, "openai_responses"), (ANTHROPIC, "anthropic")]
)
async def test_model_request_body_is_what_the_provider_accepts(name: str, target: str) -> None:
    """A window with calls, errors, reasoning and unparsable arguments is sent as a body that the rules accept (C7, A2)."""
    calls = [FakeCall("c1", "look", '{"at":1}'), FakeCall("c2", "look", '{"at":')]
    tools = [{"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}]
    # OpenAI's own Chat Completions shows no reasoning; the field of compatible servers goes back to those alone.
    reasoning = "" if name == CHAT else "Hm."
    thinking = FakeAnswer("Looking.", reasoning=reasoning, signature=SIGNATURE, calls=calls)
    with FakeProvider([thinking, FakeAnswer("Seen."), FakeAnswer("ok")]) as provider:
        async with client_of(provider, name) as client:
            window = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, user("look")]
            for more in (
                tool_results(("c1", "look", "a knot", False), ("c2", "look", "bad arguments", True)),
                user("go on"),
            ):
                reply = await reply_of(client, *window, tools=tools)
                window += [{"role": "assistant", "content": list(reply.content)}, more]
            await reply_of(client, *window, tools=tools)
        bodies = [request.json() for request in provider.asked]
    assert [validate(target, body) for body in bodies] == [[], [], []]


async def test_model_of_openai_is_asked_to_keep_no_copy() -> None:
    """The session is the only copy: the Responses API is told not to store it (C20)."""
    with FakeProvider([FakeAnswer("ok")]) as provider:
        async with client_of(provider, RESPONSES) as client:
            await events_of(client, user("hi"))
        assert provider.asked[0].json()["store"] is False


FAILURES: list[tuple[FakeFailure, type[ModelError]]] = [
    (FakeFailure(400, "messages.1: tool_use ids were found without tool_result blocks"), ModelRefusedError),
    (FakeFailure(401, f"invalid x-api-key {KEY}", "authentication_error"), ModelAuthError),
    (FakeFailure(403, "not yours", "permission_error"), ModelAuthError),
    (FakeFailure(404, "no such model", "not_found_error"), ModelNotFoundError),
    (FakeFailure(413, "too large", "request_too_large"), ModelContextOverflowError),
    (FakeFailure(429, "slow down", "rate_limit_error", headers={"retry-after": "17"}), ModelRateLimitedError),
    (FakeFailure(500, "oops", "api_error"), ModelUnavailableError),
    (FakeFailure(503, "busy", "api_error"), ModelUnavailableError),
    (FakeFailure(529, "overloaded", "overloaded_error"), ModelUnavailableError),
    (FakeFailure(502, body=b"<html>bad gateway</html>"), ModelUnavailableError),
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("scripted", "expected"), FAILURES, ids=lambda value: str(getattr(value, "status", "")))
async def test_model_failure_is_typed_and_not_retried_in_secret(
    name: str, scripted: FakeFailure, expected: type[ModelError]
) -> None:
    """Each refusal has its own class, says what to do, hides the key, and is asked once: retrying is the caller's (A41)."""
    error = await failure_of(name, scripted)
    assert type(error) is expected
    assert error.code == expected.code
    assert error.retryable is (expected in {ModelRateLimitedError, ModelUnavailableError})
    assert KEY not in str(error)
    assert "{" not in str(error)
    if expected is ModelRateLimitedError:
        assert error.retry_after_s == 17
    if expected is ModelAuthError:
        assert "THE_KEY" in str(error)


@pytest.mark.parametrize(
    ("name", "scripted"),
    [
        (CHAT, FakeFailure(400, "maximum context length is 8192 tokens", code="context_length_exceeded")),
        (RESPONSES, FakeFailure(400, "Your input exceeds the context window", code="context_length_exceeded")),
        (ANTHROPIC, FakeFailure(400, "prompt is too long: 1100000 tokens > 1000000 maximum")),
    ],
)
async def test_model_overflow_is_told_apart_from_other_refusals(name: str, scripted: FakeFailure) -> None:
    """A window that is too long is its own error, for a shorter one will be taken (A2)."""
    error = await failure_of(name, scripted)
    assert type(error) is ModelContextOverflowError
    assert isinstance(error, ModelRefusedError)


async def test_model_quota_is_told_apart_from_a_rate_limit() -> None:
    """An empty account is not worth waiting for."""
    error = await failure_of(
        CHAT, FakeFailure(429, "You exceeded your quota", "insufficient_quota", "insufficient_quota")
    )
    assert type(error) is ModelQuotaError
    assert not error.retryable


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dropped", [True, False])
async def test_model_stream_that_breaks_off_is_an_error_and_keeps_what_came(name: str, *, dropped: bool) -> None:
    """A dropped or too short stream never passes for an answer; its text stays readable as interrupted (C5)."""
    text = "The first words and then nothing"
    broken = FakeAnswer(text, cut_after=6) if dropped else FakeAnswer(text, end_after=6)
    with FakeProvider([broken]) as provider:
        async with client_of(provider, name) as client, client.stream(ModelRequest(name, [user("hi")])) as stream:
            seen = ""

            async def read() -> None:
                nonlocal seen
                async for event in stream:
                    assert isinstance(event, TextDelta)
                    seen += event.text

            with pytest.raises(ModelStreamCutError) as caught:
                await read()
            partial = stream.partial()
    assert caught.value.retryable
    assert seen
    assert (partial.text, partial.state) == (seen, "interrupted")
    assert text.startswith(seen)


@pytest.mark.parametrize("name", [CHAT, ANTHROPIC])
async def test_model_failure_in_mid_stream_is_typed_like_one_before_it(name: str) -> None:
    """A provider that gives up inside an open stream is told apart as well, and what it said is kept (C5)."""
    overloaded = FakeFailure(529, "Overloaded", "overloaded_error", "overloaded_error")
    with FakeProvider([FakeAnswer("Half of it is here", fail_after=5, failure=overloaded)]) as provider:
        async with client_of(provider, name) as client:
            stream = client.stream(ModelRequest(name, [user("hi")]))
            with pytest.raises(ModelError, match="Overloaded") as caught:
                _ = [event async for event in stream]
    assert caught.value.retryable
    assert stream.partial().text.startswith("Half")


async def test_model_window_tells_of_a_picture_whose_blob_is_gone() -> None:
    """A lost image is told of in its place: a session with one goes on (C16)."""

    async def lost(digest: str) -> bytes:
        raise BlobNotFoundError(digest=digest, session_id="s")

    picture = {"type": "media", "media_type": "image/png", "blob": "ab" * 32, "size": 3}
    with FakeProvider([FakeAnswer("ok")]) as provider:
        async with client_of(provider, CHAT) as client:
            await events_of(client, {"role": "user", "content": [picture]}, read_blob=lost)
        (asked,) = provider.asked
        assert "image/png" in str(asked.json()["messages"])
        assert asked.violations() == []


async def test_model_that_is_not_there_is_unreachable() -> None:
    """A refused connection names the address and may be retried."""
    with FakeProvider() as provider:
        address = provider.base_url
    client = open_provider_client(CHAT, base_url=address, api_key=KEY)
    with pytest.raises(ModelUnreachableError) as caught:
        await events_of(client, user("hi"))
    await client.aclose()
    assert not isinstance(caught.value, ModelStreamCutError)
    assert address in str(caught.value)
    assert caught.value.retryable


async def test_model_that_speaks_another_language_is_an_error() -> None:
    """A page where a stream should be is an unreadable answer, not an empty one."""
    error = await failure_of(CHAT, FakeFailure(200, body=b"<html>hello</html>", headers={"content-type": "text/html"}))
    assert isinstance(error, ModelAnswerError | ModelStreamCutError)


@pytest.mark.parametrize("name", ALL)
async def test_model_interrupted_in_mid_stream_gives_the_partial_answer(name: str) -> None:
    """A word from another task ends a silent stream with what had arrived, and frees the connection (A44, C13)."""
    with FakeProvider([FakeAnswer("Half of it is here", chunk_chars=4, hold_after=8)]) as provider:
        async with client_of(provider, name) as client, client.stream(ModelRequest(name, [user("hi")])) as stream:
            begun = asyncio.Event()

            async def interrupt_when_silent() -> None:
                await asyncio.gather(begun.wait(), asyncio.to_thread(provider.held.wait, 60))
                stream.interrupt()

            interrupter = asyncio.create_task(interrupt_when_silent())
            events: list[ModelEvent] = []
            async for event in stream:
                events.append(event)
                begun.set()
            *deltas, reply = events
            await interrupter
            assert isinstance(reply, ModelReply)
            assert reply.state == "interrupted"
            assert reply.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
            assert reply.text.startswith("Half")
            assert stream.partial() is reply
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
        assert await asyncio.to_thread(provider.abandoned.wait, 60)


@pytest.mark.parametrize("name", ALL)
async def test_model_stream_of_a_cancelled_task_keeps_the_partial_answer(name: str) -> None:
    """Cancelling the reading task goes through, and the partial answer is still there to be recorded (A24, C5)."""
    calls = [FakeCall("a", "write", '{"path": "somewhere"}')]
    answer = FakeAnswer("I will write.", calls=calls, chunk_chars=4, hold_after=12)
    with FakeProvider([answer]) as provider:
        async with client_of(provider, name) as client:
            stream = client.stream(ModelRequest(name, [user("hi")]))

            begun = asyncio.Event()

            async def read() -> None:
                async for _ in stream:
                    begun.set()

            reader = asyncio.create_task(read())
            await asyncio.gather(begun.wait(), asyncio.to_thread(provider.held.wait, 60))
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            partial = stream.partial()
            assert (partial.state, partial.tool_calls, partial.opaque) == ("interrupted", (), None)
            assert partial.text
            assert "I will write.".startswith(partial.text)
        assert await asyncio.to_thread(provider.abandoned.wait, 60)


async def test_model_endless_answer_stops_at_a_word() -> None:
    """An answer without an end can be ended by its reader (A44)."""
    with FakeProvider([FakeAnswer("again ", endless=True)]) as provider:
        async with client_of(provider, CHAT) as client, client.stream(ModelRequest(CHAT, [user("hi")])) as stream:
            events: list[ModelEvent] = []
            async for event in stream:
                events.append(event)
                if len(events) == 50:
                    stream.interrupt()
            last = events[-1]
        assert isinstance(last, ModelReply)
        assert last.state == "interrupted"
        assert last.text.startswith("again again ")
        assert await asyncio.to_thread(provider.abandoned.wait, 60)


async def test_model_stream_left_early_frees_its_connection() -> None:
    """Leaving the block is enough."""
    with FakeProvider([FakeAnswer("Half of it is here", hold_after=3)]) as provider:
        async with client_of(provider, CHAT) as client:
            async with client.stream(ModelRequest(CHAT, [user("hi")])) as stream:
                await anext(stream)
            assert await asyncio.to_thread(provider.abandoned.wait, 60)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)


async def test_model_answers_many_at_once_and_one_interruption_touches_no_other() -> None:
    """Streams of one client are independent (A41)."""
    answers = [FakeAnswer(f"answer of many words number {n}") for n in range(4)]
    with FakeProvider([*answers]) as provider:
        async with client_of(provider, CHAT) as client:
            lost = client.stream(ModelRequest(CHAT, [user("lost")]))
            await anext(lost)
            others = asyncio.gather(*(reply_of(client, user(f"{n}")) for n in range(3)))
            lost.interrupt()
            assert [event.state async for event in lost if isinstance(event, ModelReply)] == ["interrupted"]
            assert {reply.text[:15] for reply in await others} == {"answer of many "}


@pytest.mark.parametrize("settings", [{"temprature": 1}, {"provider": 3}])
async def test_model_setting_that_nobody_knows_is_an_error(settings: dict[str, Any]) -> None:
    """A mistyped setting is told, before anything is sent (B37)."""
    with FakeProvider([FakeAnswer("ok")]) as provider:
        async with client_of(provider, CHAT) as client:
            with pytest.raises(ConfigurationError, match="known are max_tokens"):
                await events_of(client, user("hi"), settings=settings)
        assert provider.asked == []


async def test_model_description_names_no_secret() -> None:
    """What is shown of a client never has its key, and tells accounts apart."""
    one = open_provider_client(CHAT, base_url="http://127.0.0.1:9/v1", api_key="key-one-of-two")
    two = open_provider_client(CHAT, base_url="http://127.0.0.1:9/v1", api_key="key-two-of-two")
    assert one.describe().account != two.describe().account
    assert "key-one-of-two" not in repr(one.describe())
    await one.aclose()
    await two.aclose()
