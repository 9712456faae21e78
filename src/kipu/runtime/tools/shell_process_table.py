"""The background processes of one session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from kipu.errors import SandboxError
from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.sandbox import CommandRequest, Sandbox
from kipu.runtime.tools.shell_process import ShellProcess

# Ended ones stay for the model to read; the oldest go first.
MAX_ENDED = 32


@dataclass(slots=True)
class BackgroundProcess:
    """A process in the background, and how far its output was read."""

    process_id: str
    process: ShellProcess
    description: str
    next_offset: int = 0


class ProcessTable:
    """Hold a session's sandbox and what runs in it; closing it ends everything and frees the sandbox (B49)."""

    def __init__(self, sandbox: Sandbox, limits: CommandLimits) -> None:
        self.sandbox = sandbox
        self.limits = limits
        self._background: dict[str, BackgroundProcess] = {}
        self._foreground: set[ShellProcess] = set()
        self._count = 0
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Tell whether no command can be started any more."""
        return self._is_closed

    def running_count(self) -> int:
        """Return how many background processes run."""
        return sum(entry.process.is_running for entry in self._background.values())

    def all(self) -> list[BackgroundProcess]:
        """Return the background processes in the order of their start, ended ones included."""
        return list(self._background.values())

    def find(self, process_id: str) -> BackgroundProcess | None:
        """Return the background process of that id."""
        return self._background.get(process_id)

    async def start(self, request: CommandRequest, *, emit: Callable[[str], None]) -> ShellProcess:
        """Start a command under this table's care, until it is left or adopted.

        Raises: SandboxError.
        """
        if self._is_closed:
            raise SandboxError(tool="shell", reason="the session is closed")
        process = await ShellProcess.start(self.sandbox, request, emit=emit)
        self._foreground.add(process)
        if self._is_closed:
            await process.stop("closed", grace_s=0)
        return process

    def leave(self, process: ShellProcess) -> None:
        """Let go of a foreground command that has ended."""
        self._foreground.discard(process)

    def adopt(self, process: ShellProcess, *, description: str) -> BackgroundProcess:
        """Keep a command as a background process and give it an id."""
        self._foreground.discard(process)
        self._count += 1
        entry = BackgroundProcess(f"p{self._count}", process, description)
        self._background[entry.process_id] = entry
        ended = [key for key, known in self._background.items() if not known.process.is_running]
        for key in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._background[key]
        return entry

    async def aclose(self) -> None:
        """End everything at once, wait until it is gone, and free the sandbox."""
        self._is_closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        processes = [*self._foreground, *(entry.process for entry in self._background.values())]
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(process.stop("closed", grace_s=0) for process in processes))
        await self.sandbox.aclose()
