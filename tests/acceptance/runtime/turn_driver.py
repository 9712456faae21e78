"""A process that runs one turn with two parallel calls and an approval, and dies at a chosen append."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from kipu.ports.model import ModelRequest
from kipu.ports.store import Appended
from kipu.stores.wrapper import WrappedStore
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, runtime


class DyingStore(WrappedStore):
    """Kill this process before or after its n-th append."""

    def __init__(self, inner: Any, *, append: int, before: bool) -> None:
        super().__init__(inner)
        self._left = append
        self._before = before

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        self._left -= 1
        if self._left == 0 and self._before:
            os.kill(os.getpid(), signal.SIGKILL)
        appended = await self.inner.append(*args, **kwargs)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return appended


def answer(request: ModelRequest) -> ScriptedReply:
    """Call three tools once, then be done."""
    if any(message["role"] == "tool" for message in request.messages):
        return ScriptedReply("Done.")
    return ScriptedReply("On it.", calls=[ScriptedCall("read"), ScriptedCall("write"), ScriptedCall("danger")])


def tools(effects: Path) -> list[FunctionTool]:
    """Tools whose every run leaves a line, durable at once."""

    def effect(name: str) -> Any:
        async def run(_arguments: Any, _context: Any) -> str:
            handle = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(handle, f"{name}\n".encode())
            os.fsync(handle)
            os.close(handle)
            return f"{name} done"

        return run

    return [
        FunctionTool("read", effect("read"), {"is_idempotent": True}),
        FunctionTool("write", effect("write"), {"has_side_effect": True}),
        FunctionTool("danger", effect("danger"), {"has_side_effect": True, "default_policy": "ask"}),
    ]


async def finish(run: Runtime) -> None:
    """Let the worker work, and allow whatever it asks, until nothing is left."""
    while True:
        await run.worker.sweep()
        await run.settled()
        waiting = await run.desk.pending()
        if not waiting:
            return
        for approval in waiting:
            await run.desk.approve(approval.approval_id)
        await run.settled()


async def one_turn(url: str, effects: Path, *, append: int, before: bool) -> None:
    """Take a message and run its turn; die on the way."""
    manager = await open_manager(url)
    session = await manager.get_or_create("test:1")
    manager.store = DyingStore(manager.store, append=append, before=before)
    manager.writer._store = manager.store
    session._store = session._journal._store = session.lock._store = manager.store
    async with runtime(ScriptedModelClient(answer), *tools(effects), manager=manager) as run:
        await run.say(session, "do it")
        await finish(run)
    await manager.close()


def main(url: str, effects: str, append: int, before: bool) -> None:
    """Run it; what a child process starts with."""
    asyncio.run(one_turn(url, Path(effects), append=append, before=before))
