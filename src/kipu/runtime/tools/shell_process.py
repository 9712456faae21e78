"""One command from its start to the end of the last process it started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from kipu.runtime.sandbox.sandbox import CommandRequest, RunningCommand, Sandbox
from kipu.runtime.sandbox.usage import LimitName, UsageWatch
from kipu.runtime.tools.shell_output import LiveOutput, OutputLog

EndReason: TypeAlias = LimitName | Literal["timeout", "cancelled", "killed", "closed"]
LAST_OUTPUT_WAIT_S = 1.0
SLOWEST_WATCH_S = 1.0


class ShellProcess:
    """Run one command: take its output as it comes, hold it to its limits, and leave no process of it behind (B49)."""

    def __init__(
        self, running: RunningCommand, request: CommandRequest, *, writable: Sequence[Path], emit: Callable[[str], None]
    ) -> None:
        self.command = request.command
        self.output = OutputLog(request.limits.kept_output_bytes)
        self.end_reason: EndReason | None = None
        self.changed = asyncio.Event()
        self._running = running
        self._limits = request.limits
        self._monotonic = asyncio.get_running_loop().time
        self._began_s = self._monotonic()
        self._ended_s: float | None = None
        self._live = LiveOutput(emit, max_bytes_per_s=request.limits.live_bytes_per_s, monotonic=self._monotonic)
        self._usage = UsageWatch(request.limits, writable, started_s=time.time() - 0.01, monotonic=self._monotonic)
        self._life = asyncio.create_task(self._follow())

    @classmethod
    async def start(cls, sandbox: Sandbox, request: CommandRequest, *, emit: Callable[[str], None]) -> ShellProcess:
        """Start a command; a caller who is cancelled meanwhile leaves none behind."""
        starting = asyncio.create_task(sandbox.start(request))
        try:
            running = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _finish(_kill_started(starting))
            raise
        return cls(running, request, writable=sandbox.writable, emit=emit)

    @property
    def exit_code(self) -> int | None:
        """Return its exit code once all of it has ended."""
        return self._running.exit_code if self._life.done() else None

    @property
    def is_running(self) -> bool:
        """Tell whether anything of it runs."""
        return not self._life.done()

    @property
    def duration_s(self) -> float:
        """Return how long it ran, or has run until now."""
        return (self._monotonic() if self._ended_s is None else self._ended_s) - self._began_s

    async def ended(self) -> None:
        """Wait until all of it has ended."""
        await asyncio.shield(self._life)

    async def stop(self, reason: EndReason, *, grace_s: float | None = None) -> None:
        """Ask it to end, then end it; return when nothing is left, also for a caller who is cancelled."""
        await _finish(self._stop(reason, self._limits.grace_s if grace_s is None else grace_s))

    async def _stop(self, reason: EndReason, grace_s: float) -> None:
        if self._life.done():
            return
        self.end_reason = self.end_reason or reason
        if grace_s > 0:
            await asyncio.to_thread(self._running.terminate)
            await asyncio.wait([self._life], timeout=grace_s)
        await self._running.kill()
        await self._life

    async def _follow(self) -> None:
        pump = asyncio.create_task(self._pump())
        watch = asyncio.create_task(self._watch())
        try:
            await self._running.wait()
            await asyncio.wait([pump], timeout=LAST_OUTPUT_WAIT_S)
        finally:
            watch.cancel()
            await self._running.kill()
            await asyncio.gather(pump, watch, return_exceptions=True)
            self._ended_s = self._monotonic()
            self._live.end()
            self.changed.set()

    async def _pump(self) -> None:
        while data := await self._running.output.read(64 * 1024):
            self.output.add(data)
            self._live.add(data)
            self.changed.set()

    async def _watch(self) -> None:
        pause_s = self._limits.watch_interval_s
        while True:
            await asyncio.sleep(pause_s)
            exceeded = await asyncio.to_thread(self._exceeded)
            if exceeded is not None:
                self.end_reason = self.end_reason or exceeded
                await self._running.kill()
                return
            # What uses little is looked at less often.
            is_near = self._usage.is_near
            pause_s = self._limits.watch_interval_s if is_near else min(pause_s * 1.5, SLOWEST_WATCH_S)

    def _exceeded(self) -> LimitName | None:
        return self._usage.exceeded(self._running.processes())


async def _kill_started(starting: asyncio.Task[RunningCommand]) -> None:
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().kill()


async def _finish(work: object) -> None:
    """Do it to the end, however often the caller is cancelled, and only then let the cancellation go on."""
    assert asyncio.iscoroutine(work)  # noqa: S101
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            is_cancelled = True
    task.result()
    if is_cancelled:
        raise asyncio.CancelledError
