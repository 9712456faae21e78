"""The scripted model client keeps the contract of `ModelClient`, so that what is tested with it holds with real ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.errors import ModelError, ModelRateLimitedError, ModelUnavailableError
from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta
from kipu.testing.scripted_model import (
    Scripted,
    ScriptedCall,
    ScriptedModelClient,
    ScriptedReply,
    results_of,
    texts_of,
)


def request(text: str, *more: dict[str, Any]) -> ModelRequest:
    return ModelRequest("m", [{"role": "user", "content": [{"type": "text", "text": text}]}, *more])


async def events_of(client: ScriptedModelClient, asked: ModelRequest) -> list[ModelEvent]:
    async with client.stream(asked) as stream:
        return [event async for event in stream]


async def test_scripted_model_streams_deltas_that_make_up_the_reply() -> None:
    """Reasoning, text and calls arrive in pieces, and joined they are the reply's."""
    calls = [ScriptedCall("read", {"path": "a"}), ScriptedCall("x", '{"a":'), ScriptedCall("y", call_id="call_0")]
    said = ScriptedReply("I will read it.", reasoning="hm, a file", signature="s", calls=calls, piece_chars=4)
    *deltas, reply = await events_of(ScriptedModelClient([said]), request("hi"))
    assert isinstance(reply, ModelReply)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.text == "I will read it."
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == reply.reasoning == "hm, a file"
    streamed = ["", "", ""]
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            streamed[delta.index] += delta.arguments
    assert streamed == ['{"path": "a"}', '{"a":', "{}"]
    assert [call.get("input", call.get("raw")) for call in reply.tool_calls] == [{"path": "a"}, '{"a":', {}]
    assert [call["id"] for call in reply.tool_calls] == ["call_0", "call_1", "call_0"]
    assert (reply.state, reply.opaque is not None) == ("complete", True)


async def test_scripted_model_answers_by_what_it_is_asked() -> None:
    """A function, async too, sees the request: sessions that run at once do not take each other's answers."""

    async def script(asked: ModelRequest) -> Scripted:
        await asyncio.sleep(0)
        return f"to {texts_of(asked)[-1]}: {len(results_of(asked))}"

    client = ScriptedModelClient(script)
    answers = await asyncio.gather(*(events_of(client, request(str(n))) for n in range(20)))
    assert [event.text for events in answers for event in events if isinstance(event, ModelReply)] == [
        f"to {n}: 0" for n in range(20)
    ]
    assert (client.peak, client.running, len(client.requests)) == (20, 0, 20)


async def test_scripted_model_raises_what_it_is_told_and_keeps_what_it_said() -> None:
    """An error comes instead of the reply, at its place; the partial reply has no call in it."""
    late = ModelRateLimitedError(model="m", reason="slow down", retry_after_s=3)
    cut = ScriptedReply("Half of the answer", calls=[ScriptedCall("x")], piece_chars=4, error=late, error_after=2)
    client = ScriptedModelClient([cut])
    stream = client.stream(request("hi"))
    with pytest.raises(ModelRateLimitedError):
        _ = [event async for event in stream]
    assert (stream.partial().text, stream.partial().tool_calls) == ("Half of ", ())
    with pytest.raises(ModelUnavailableError, match="no answer is scripted"):
        await events_of(client, request("again"))
    client.add(ModelError(model="m", reason="bad"))
    with pytest.raises(ModelError, match="bad"):
        await events_of(client, request("again"))


async def test_scripted_model_holds_until_released_or_interrupted() -> None:
    """A held answer waits; an interruption ends it with what had come, a release lets it finish."""
    client = ScriptedModelClient([ScriptedReply("One two three", piece_chars=4, hold_after=1)] * 2)
    stream = client.stream(request("hi"))
    reader = asyncio.create_task(anext_all(stream))
    await client.held.wait()
    stream.interrupt()
    last = (await reader)[-1]
    assert isinstance(last, ModelReply)
    assert (last.text, last.state, client.interrupted) == ("One ", "interrupted", 1)
    second = asyncio.create_task(events_of(client, request("hi")))
    await client.held.wait()
    client.release()
    whole = (await second)[-1]
    assert isinstance(whole, ModelReply)
    assert (whole.text, whole.state) == ("One two three", "complete")


async def anext_all(stream: Any) -> list[ModelEvent]:
    return [event async for event in stream]
