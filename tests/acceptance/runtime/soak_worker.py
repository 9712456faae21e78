"""A worker process for soaks: it serves every session of a store until it is told to end, or is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kipu.errors import StoreUnavailableError
from kipu.manager.lock import DEFAULT_TTL_S
from kipu.manager.manager import SessionManager
from kipu.ports.model import ModelRequest
from kipu.ports.tool import ToolContext
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of, texts_of
from kipu.testing.validators import validate
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, runtime

SLOWEST_S = 0.03


@dataclass(frozen=True)
class Machine:
    """What is a machine's own: its name, how far its clock is off, and how long the leases are that are taken there."""

    host: str | None = None  # None: this one's, whose processes are known to be dead or alive
    clock_off_s: float = 0.0
    lease_ttl_s: float = DEFAULT_TTL_S

    def be(self) -> None:
        """Have this process be on the machine. It lasts as long as the process."""
        if self.host is not None:
            host = self.host
            setattr(socket, "gethostname", lambda: host)  # noqa: B010 - what is replaced is another's
        off_s, real_s, real_ns = self.clock_off_s, time.time, time.time_ns
        if off_s:
            setattr(time, "time", lambda: real_s() + off_s)  # noqa: B010
            setattr(time, "time_ns", lambda: real_ns() + int(off_s * 1e9))  # noqa: B010


class Book:
    """A file of lines that are durable at once, so that what happened in a killed process is known."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, *words: str) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, ("\t".join(words) + "\n").encode())
        os.close(handle)  # SIGKILL loses nothing that was written

    def lines(self) -> list[list[str]]:
        """Return what was written, one list of words a line."""
        text = self._path.read_text() if self._path.exists() else ""
        return [line.split("\t") for line in text.splitlines()]

    def begin(self) -> None:
        """Say that this process has begun."""
        self._path.with_name(f"began-{os.getpid()}").touch()

    def has_begun(self, pid: int | None) -> bool:
        """Return whether a process has begun."""
        return self._path.with_name(f"began-{pid}").exists()


def by_this_process() -> str:
    """Return words that say who wrote them, for whoever asks the log whether it had the turn then."""
    return f"[by {os.getpid()}]"


class SoakModel:
    """Answer by what is asked: a message that says `plan=read,write` gets these calls first, one more message with them."""

    def __init__(self, book: Book, *, seed: int) -> None:
        self._book = book
        self._random = random.Random(seed)

    def __call__(self, request: ModelRequest) -> ScriptedReply:
        found = validate("neutral", {"messages": request.messages})
        if found:
            self._book.write("refused", json.dumps([str(entry) for entry in found]), json.dumps(request.messages))
        asked = texts_of(request)[-1] if texts_of(request) else ""
        plan = asked.rpartition("plan=")[2].split() if "plan=" in asked else []
        calls = [] if results_of(request) or not plan else [name for name in plan[0].split(",") if name]
        return ScriptedReply(
            f"About {asked[-200:]}: " + "so it is. " * self._random.randrange(3) + by_this_process(),
            calls=[ScriptedCall(name, {"n": self._random.randrange(10**9)}) for name in calls],
            before=self._think,
        )

    async def _think(self) -> None:
        await asyncio.sleep(self._random.random() * SLOWEST_S)


def soak_tools(book: Book, *, seed: int) -> list[FunctionTool]:
    """Tools of every kind, each of whose runs leaves a line."""
    chance = random.Random(seed + 1)

    def effect(name: str) -> Any:
        async def run(_arguments: Mapping[str, Any], context: ToolContext) -> str:
            book.write("ran", name, context.session_id, context.call_id)
            await asyncio.sleep(chance.random() * SLOWEST_S)
            return f"{name} done {by_this_process()}"

        return run

    return [
        FunctionTool("read", effect("read"), {"is_idempotent": True}),
        FunctionTool("look", effect("look"), {"is_idempotent": True}),
        FunctionTool("write", effect("write"), {"has_side_effect": True}),
        FunctionTool("send", effect("send"), {"has_side_effect": True, "is_external": True}),
        FunctionTool("danger", effect("danger"), {"has_side_effect": True, "default_policy": "ask"}),
    ]


async def serve(url: str, book: Book, *, seed: int, options: dict[str, Any], machine: Machine) -> None:
    """Work until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    manager = await open_patiently(url, lease_ttl_s=machine.lease_ttl_s)
    model = ScriptedModelClient(SoakModel(book, seed=seed))
    try:
        async with runtime(model, *soak_tools(book, seed=seed), manager=manager, **options):
            book.begin()
            await ended.wait()
    finally:
        await manager.close()


async def open_patiently(url: str, *, lease_ttl_s: float) -> SessionManager:
    """Return a manager as soon as the store can be opened, as whoever starts workers again and again would."""
    while True:
        try:
            return await open_manager(url, lease_ttl_s=lease_ttl_s)
        except StoreUnavailableError:
            await asyncio.sleep(0.2)


def main(url: str, book: str, seed: int, options: dict[str, Any], machine: Machine | None = None) -> None:
    """Run it; what a child process starts with."""
    machine = machine or Machine()
    machine.be()
    asyncio.run(serve(url, Book(Path(book)), seed=seed, options=options, machine=machine))
