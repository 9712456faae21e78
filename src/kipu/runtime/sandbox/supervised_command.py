"""A command that runs without a sandbox, below its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import Process

from kipu.runtime.sandbox.output_pipe import OutputPipe
from kipu.runtime.sandbox.process_tree import descendants_of, marked_processes, send_signal
from kipu.runtime.sandbox.sandboxed_command import KILL_WAIT_S, shell_exit_code


class SupervisedCommand:
    """Follow one supervisor; when it was killed itself, find by their mark what it leaves behind."""

    def __init__(self, supervisor: Process, pipe: OutputPipe, *, marker: bytes) -> None:
        self._supervisor = supervisor
        self._pipe = pipe
        self._marker = marker
        self._is_swept = False

    @property
    def output(self) -> asyncio.StreamReader:
        """Return the stream of its output."""
        return self._pipe.reader

    @property
    def exit_code(self) -> int | None:
        """Return its exit code once it has ended."""
        returned = self._supervisor.returncode
        return None if returned is None else shell_exit_code(returned)

    def processes(self) -> list[int]:
        """Return the ids of its processes."""
        if self._supervisor.returncode is not None:
            return []
        return descendants_of(self._supervisor.pid)

    def terminate(self) -> None:
        """Send SIGTERM to all of it."""
        send_signal(self.processes(), signal.SIGTERM)

    async def wait(self) -> int:
        """Wait for its end."""
        returned = await self._supervisor.wait()
        if returned < 0:
            await self._sweep()
        return shell_exit_code(returned)

    async def kill(self) -> None:
        """Let the supervisor end all below it, and look for what a killed supervisor left."""
        assert self._supervisor.stdin is not None  # noqa: S101
        self._supervisor.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._supervisor.wait(), KILL_WAIT_S)
        if self._supervisor.returncode is None:
            send_signal([*self.processes(), self._supervisor.pid], signal.SIGKILL)
            await self._supervisor.wait()
        await self.wait()
        self._pipe.close()

    async def _sweep(self) -> None:
        if self._is_swept:
            return
        self._is_swept = True
        for _ in range(100):
            left = await asyncio.to_thread(marked_processes, self._marker)
            if not left:
                return
            send_signal(left, signal.SIGKILL)
