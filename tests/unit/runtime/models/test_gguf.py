"""How the local engine is driven, with an engine that notices when it is driven wrongly."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kipu.ports.model import ModelReply, ModelRequest, TextDelta
from kipu.runtime.models.gguf import GgufModelClient

MANY = 2_000
WINDOW = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


class Engine:
    """Stand in for `xllamacpp.Server`: says "knot " until it is told to stop, or up to MANY times."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.inside = threading.Lock()
        self.entered_twice = False
        self.said: list[int] = []

    def handle_chat_completions(self, body: Mapping[str, Any], take: Callable[[Mapping[str, Any]], bool]) -> None:
        if not self.inside.acquire(blocking=False):
            self.entered_twice = True
            return
        count = 0
        limit = min(MANY, body["max_tokens"])
        pause = threading.Event()
        while count < limit:
            count += 1
            finish = "length" if count == limit else None
            if take({"choices": [{"delta": {"content": "knot "}, "finish_reason": finish}]}):
                break
            pause.wait(0.001)
        self.said.append(count)
        self.inside.release()


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    made: list[Engine] = []

    def server(parameters: Any) -> Engine:
        made.append(Engine(parameters))
        return made[-1]

    def parameters() -> types.SimpleNamespace:
        names = ("model", "cpuparams", "cpuparams_batch")
        return types.SimpleNamespace(**{name: types.SimpleNamespace() for name in names})

    monkeypatch.setitem(sys.modules, "xllamacpp", types.SimpleNamespace(Server=server, CommonParams=parameters))
    return made


@pytest.fixture
def client(tmp_path: Path) -> GgufModelClient:
    path = tmp_path / "some.gguf"
    path.write_bytes(b"GGUF")
    return GgufModelClient(path, context_tokens=100)


async def test_gguf_engine_stops_when_its_answer_is_interrupted(client: GgufModelClient, engines: list[Engine]) -> None:
    """The engine does not go on for nobody, and closing waits until it is idle (B49)."""
    stream = client.stream(ModelRequest("m", WINDOW, settings={"max_tokens": MANY}))
    assert isinstance(await anext(stream), TextDelta)
    stream.interrupt()
    reply = await anext(stream)
    assert isinstance(reply, ModelReply)
    assert reply.text.startswith("knot ")
    await client.aclose()
    assert len(engines[0].said) == 1
    assert engines[0].said[0] < MANY


async def test_gguf_engine_runs_one_answer_at_a_time(client: GgufModelClient, engines: list[Engine]) -> None:
    """Questions at the same time are answered one after another by one engine, on one thread, behind a key of its own."""

    async def ask() -> ModelReply:
        events = [event async for event in client.stream(ModelRequest("m", WINDOW, settings={"max_tokens": 20}))]
        assert isinstance(events[-1], ModelReply)
        return events[-1]

    replies = await asyncio.gather(ask(), ask(), ask())
    await client.aclose()
    assert [reply.text for reply in replies] == ["knot " * 20] * 3
    (engine,) = engines
    assert not engine.entered_twice
    assert engine.said == [20, 20, 20]
    assert (engine.parameters.cpuparams.n_threads, engine.parameters.n_ctx) == (1, 100)
    assert len(engine.parameters.api_keys[0]) >= 32
