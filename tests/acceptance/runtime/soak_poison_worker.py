"""A worker process one of whose turns kills it, whenever it is taken up."""

from __future__ import annotations

import asyncio
import os
import signal

from kipu.ports.model import ModelRequest
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply, texts_of
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import runtime

THINKING_S = 0.25


async def die() -> None:
    """Kill this process, a little before anybody else has an answer."""
    await asyncio.sleep(THINKING_S / 5)
    os.kill(os.getpid(), signal.SIGKILL)


async def think() -> None:
    """Take the time that an answer takes."""
    await asyncio.sleep(THINKING_S)


def answer(request: ModelRequest) -> ScriptedReply:
    """Answer, or die of the question."""
    return ScriptedReply("Well.", before=die if "poison" in texts_of(request)[-1] else think)


async def serve(url: str) -> None:
    """Work until nothing is left."""
    async with (
        await open_manager(url) as manager,
        runtime(ScriptedModelClient(answer), manager=manager, sweep_s=0.1) as run,
    ):
        await run.worker.sweep()
        await run.worker.until_idle()


def main(url: str) -> None:
    """Run it; what a child process starts with."""
    asyncio.run(serve(url))
