"""A session's shell tools over a real workspace, and what runs on this machine because of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kipu.ports.principal import Principal
from kipu.ports.tool import ToolContext, ToolResult
from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.opening import open_sandbox
from kipu.runtime.sandbox.probe import BubblewrapProbe, probe_bubblewrap
from kipu.runtime.tools.shell_tools import ShellTools, shell_tools

KINDS = ["bubblewrap", "none"]
SRC = Path(__file__).parents[3] / "src"


class ShellSession:
    """Call the tools as the loop does, and keep what they emit."""

    def __init__(self, tools: ShellTools, root: Path) -> None:
        self.tools = tools
        self.root = root
        self.live: list[str] = []
        self.environment: dict[str, str] = {}

    def context(self, credentials: Mapping[str, str] | None = None) -> ToolContext:
        return ToolContext(
            session_id="sess_test",
            turn_id="turn",
            call_id="call",
            principal=Principal.local(),
            environment=self.environment,
            credentials=credentials or {},
            emit=self.live.append,
        )

    async def shell(self, command: str, **arguments: Any) -> ToolResult:
        return await self.tools.shell.run({"command": command, **arguments}, self.context())

    async def text(self, command: str, **arguments: Any) -> str:
        """Return the output of a command that must succeed."""
        result = await self.shell(command, **arguments)
        assert not result.is_error, result.content
        return output_of(result)

    async def background(self, command: str) -> str:
        result = await self.shell(command, background=True)
        assert not result.is_error, result.content
        return str(result.content).split()[1]

    async def output(self, process_id: str, **arguments: Any) -> str:
        result = await self.tools.output.run({"process_id": process_id, **arguments}, self.context())
        return str(result.content)


def output_of(result: ToolResult) -> str:
    """Return what the command wrote: what stands behind the lines on how it ended."""
    return str(result.content).partition("\n\n")[2]


@asynccontextmanager
async def open_shell(
    root: Path,
    kind: str,
    *,
    limits: CommandLimits | None = None,
    hidden: Sequence[Path] = (),
    has_network: bool = False,
    session_id: str = "sess_test",
) -> AsyncIterator[ShellSession]:
    """Open the tools with a sandbox of this kind, skip where it is not to be had, and end all of it."""
    root.mkdir(exist_ok=True, parents=True)
    probe = BubblewrapProbe(None, "the test wants none")
    if kind == "bubblewrap":
        probe = await probe_bubblewrap()
        if probe.path is None:
            pytest.skip(str(probe.reason))
    sandbox = await open_sandbox(root, session_id=session_id, probe=probe, hidden=hidden, has_network=has_network)
    tools = shell_tools(root, sandbox, limits=limits)
    try:
        yield ShellSession(tools, root)
    finally:
        await tools.aclose()


def new_token() -> str:
    """Return a number of seconds that nobody else sleeps for."""
    return f"8{secrets.randbelow(10**9):09d}"


def alive(token: str) -> list[int]:
    """Return the processes of this machine whose command line has the token."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


async def appears(condition: Callable[[], object], *, wait_s: float = 60.0) -> None:
    """Wait until something of the outside is so."""
    async with asyncio.timeout(wait_s):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
