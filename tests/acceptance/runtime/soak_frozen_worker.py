"""A worker process that is frozen in the middle of a tool: what it does when it wakes up, and nothing else."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kipu.ports.model import ModelRequest
from kipu.ports.tool import ToolContext
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, runtime
from tests.acceptance.runtime.soak_worker import Book, Machine

LEASE_TTL_S = 0.6
FROZEN = Machine(lease_ttl_s=LEASE_TTL_S)
RUN_ON = "run on"  # a file: the tool of the frozen worker ends when it is there


def answer(request: ModelRequest) -> ScriptedReply:
    """Call three tools in one answer, then be done."""
    if results_of(request):
        return ScriptedReply("Done.")
    return ScriptedReply("On it.", calls=[ScriptedCall("first"), ScriptedCall("second"), ScriptedCall("third")])


def frozen_tools(folder: Path, *, who: str) -> list[FunctionTool]:
    """Three tools that change things; the first one of the worker `frozen` takes until it is told."""
    book = Book(folder / "book")

    def effect(name: str) -> Any:
        async def run(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
            book.write("ran", name, who)
            while who == "frozen" and not (folder / RUN_ON).exists():  # noqa: ASYNC110 - another process tells
                await asyncio.sleep(0.01)
            book.write("ended", name, who)
            return f"{name} done"

        return run

    return [FunctionTool(name, effect(name), {"has_side_effect": True}) for name in ("first", "second", "third")]


async def serve(url: str, folder: Path, machine: Machine) -> None:
    """Work until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    model = ScriptedModelClient(answer)
    async with (
        await open_manager(url, lease_ttl_s=machine.lease_ttl_s) as manager,
        runtime(model, *frozen_tools(folder, who="frozen"), manager=manager, sweep_s=0.1),
    ):
        Book(folder / "book").begin()
        await ended.wait()


def main(url: str, folder: str, machine: Machine = FROZEN) -> None:
    """Run it; what a child process starts with."""
    machine.be()
    asyncio.run(serve(url, Path(folder), machine))
