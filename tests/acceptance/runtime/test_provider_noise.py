"""A provider that speaks HTTP badly, or something else altogether, through the real client libraries: the turn ends in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kipu.events.turn import TurnFinishedEvent
from kipu.runtime.models.pydantic_ai_client import open_provider_client
from kipu.runtime.turns.model_step import StreamLimits
from tests.acceptance.runtime.fakes import kinds, runtime, until

ALL = ["openai-chat:some-model", "openai-responses:gpt-6-luna", "anthropic:claude-sonnet-5-5"]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
QUIET = StreamLimits(silence_s=0.2)

# What is sent at once, and what is then sent for ever, with a pause between.
NOISE: dict[str, tuple[bytes, bytes, float]] = {
    "invalid UTF-8": (STREAM + b'data: {"id": "x\xff\xfe"}\n\n', b"", 0),
    "a line without end": (STREAM + b"data: ", b"a" * 65_536, 0),
    "keep-alive only": (STREAM, b": keep-alive\n\n", 0.02),
    "a flood of comments": (STREAM, b": keep-alive\n\n" * 1_000, 0),
    "a login page": (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 18\r\n\r\n<html>login</html>", b"", 0),
    "a page without end": (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n", b"<p>" * 10_000, 0),
    "JSON and no stream": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}", b"", 0),
    "nothing": (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n", b"", 0),
    "no HTTP": (b"\x00\xff not http at all\r\n\r\n", b"", 0),
    "headers without end": (b"HTTP/1.1 200 OK\r\n", b"x-h: " + b"a" * 60_000 + b"\r\n", 0),
    "an error without end": (b"HTTP/1.1 500 no\r\ncontent-type: text/plain\r\n\r\n", b"e" * 65_536, 0),
    "data that is no event": (STREAM + b'data: \x00\n\ndata: null\n\ndata: 5\n\ndata: []\n\ndata: {"type": "x"}\n\n', b"", 0),
    "a redirection": (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", b"", 0),
    "half a chunk": (STREAM.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\n"), b"", 0),
}  # fmt: skip


@asynccontextmanager
async def speaking(first: bytes, again: bytes, pause_s: float) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Serve these bytes to whoever asks; yields the port and what was asked."""
    asked: list[bytes] = []
    answering: set[asyncio.Task[Any]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        answering.update([task] if task is not None else [])
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(first)
            while again:
                writer.write(again)
                await writer.drain()
                await asyncio.sleep(pause_s)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("noise", NOISE)
async def test_turn_ends_in_order_whatever_a_provider_says(name: str, noise: str) -> None:
    """Noise instead of an answer is asked again a bounded number of times, ends the turn, and leaves a valid history (A35)."""
    async with speaking(*NOISE[noise]) as (port, asked):
        url = f"http://127.0.0.1:{port}" + ("" if name.startswith("anthropic") else "/v1")
        client: Any = open_provider_client(name, base_url=url, api_key="key-of-a-test")
        try:
            async with runtime(client, stream_limits=QUIET) as run, asyncio.timeout(60):
                session = await run.session()
                await run.say(session, "hi")
                finished = await until(session, TurnFinishedEvent)
                assert finished.outcome == "failed"
                assert "[model_" in (finished.error or "")
                assert "key-of-a-test" not in (finished.error or "")
                assert 1 < len(asked) <= 6
                assert "tool_call" not in await kinds(session)
        finally:
            await client.aclose()
