"""A worker as a process of its own, whose model speaks slowly and calls what it is told to: `python slow_worker.py URL FOLDER`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Self

from kipu.ports.model import ModelEvent, ModelReply, ModelRequest, ModelStream
from kipu.runtime.agent_builder import AgentSettings
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of, texts_of
from kipu.wiring import open_manager, open_runtime

PAUSE_S = 0.02
CALLS = {
    "shell": ScriptedCall("shell", {"command": "echo begun; sleep 987; echo ended"}),
    "ask": ScriptedCall("ask_user", {"question": "Which colour?"}),
}


class SlowStream:
    """A stream that takes its time."""

    def __init__(self, inner: ModelStream) -> None:
        self._inner = inner
        self.partial, self.interrupt, self.aclose = inner.partial, inner.interrupt, inner.aclose

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        event = await self._inner.__anext__()
        if not isinstance(event, ModelReply):
            await asyncio.sleep(PAUSE_S)
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_details: object) -> None:
        await self.aclose()


class SlowModel(ScriptedModelClient):
    """Speak for twenty minutes when told `speak`, for a second when told `shortly`, and call a tool when told its name."""

    def __init__(self) -> None:
        super().__init__(_answer)

    def stream(self, request: ModelRequest) -> ModelStream:  # type: ignore[override]
        """Return the answer as it comes."""
        return SlowStream(super().stream(request))


def _answer(request: ModelRequest) -> ScriptedReply:
    results = results_of(request)
    if results:
        return ScriptedReply(f"It said: {str(results[0])[:200]}")
    said = texts_of(request)[-1].split()[-1]
    if said in CALLS:
        return ScriptedReply("", calls=[CALLS[said]])
    if said == "speak":
        return ScriptedReply("".join(f"word{number:05d} " for number in range(60_000)), piece_chars=10)
    return ScriptedReply("".join(f"part{number:03d} " for number in range(50)), piece_chars=8)


async def work(url: str, folder: Path) -> None:
    """Run turns until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with (
        await open_manager(url) as manager,
        open_runtime(manager, settings=AgentSettings(folder), open_model=lambda _name: SlowModel()),
    ):
        print("ready", flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
