"""A command that bubblewrap runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from asyncio.subprocess import Process

from kipu.runtime.sandbox.output_pipe import OutputPipe
from kipu.runtime.sandbox.process_tree import descendants_of, send_signal

KILL_WAIT_S = 10.0


def shell_exit_code(returned: int) -> int:
    """Return an exit code as shells give it: 128 + n for signal n."""
    return 128 - returned if returned < 0 else returned


class SandboxedCommand:
    """Follow one bubblewrap: outside its monitor, inside its first process, whose end is the end of all others."""

    def __init__(self, monitor: Process, pipe: OutputPipe, *, first_process: int | None) -> None:
        self._monitor = monitor
        self._pipe = pipe
        self._first_process = first_process

    @property
    def output(self) -> asyncio.StreamReader:
        """Return the stream of its output."""
        return self._pipe.reader

    @property
    def exit_code(self) -> int | None:
        """Return its exit code once it has ended."""
        returned = self._monitor.returncode
        return None if returned is None else shell_exit_code(returned)

    def processes(self) -> list[int]:
        """Return the ids of its processes."""
        if self._first_process is None or self._monitor.returncode is not None:
            return []
        return descendants_of(self._first_process)

    def terminate(self) -> None:
        """Send SIGTERM to all of it."""
        send_signal(self.processes(), signal.SIGTERM)

    async def wait(self) -> int:
        """Wait for its end."""
        return shell_exit_code(await self._monitor.wait())

    async def kill(self) -> None:
        """End its first process; the kernel ends the rest, and the monitor ends when that is done."""
        if self._monitor.returncode is None and self._first_process is not None:
            send_signal([self._first_process], signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._monitor.wait(), KILL_WAIT_S)
        if self._monitor.returncode is None:
            self._monitor.kill()
            await self._monitor.wait()
        self._pipe.close()


async def read_first_process(descriptor: int) -> int | None:
    """Return the process id that bubblewrap tells through its `--info-fd`, None when it failed before."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader),
        open(descriptor, "rb", buffering=0),  # noqa: SIM115, ASYNC230
    )
    try:
        told = await reader.readuntil(b"}")
        return int(json.loads(told)["child-pid"])
    except (asyncio.IncompleteReadError, ValueError, KeyError):
        return None
    finally:
        transport.close()
