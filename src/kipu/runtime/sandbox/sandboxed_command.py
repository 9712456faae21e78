"""A command that bubblewrap runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import Process

from kipu.runtime.sandbox.output_pipe import OutputPipe
from kipu.runtime.sandbox.process_tree import descendants_of, send_signal

KILL_WAIT_S = 10.0


def shell_exit_code(returned: int) -> int:
    """Return an exit code as shells give it: 128 + n for signal n."""
    return 128 - returned if returned < 0 else returned


class SandboxedCommand:
    """Follow one bubblewrap: outside its monitor, inside its first process, whose end is the end of all others.

    The monitor ends as soon as the command does, while the kernel still ends what else runs in there. So the end is that of
    the first process, which is the last to go.
    """

    def __init__(self, monitor: Process, pipe: OutputPipe, *, first_process: FirstProcess | None) -> None:
        self._monitor = monitor
        self._pipe = pipe
        self._first = first_process

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
        if self._first is None or self._monitor.returncode is not None:
            return []
        return descendants_of(self._first.process_id)

    def terminate(self) -> None:
        """Send SIGTERM to all of it."""
        send_signal(self.processes(), signal.SIGTERM)

    async def wait(self) -> int:
        """Wait for its end."""
        returned = await self._monitor.wait()
        if self._first is not None:
            await self._first.ended()
        return shell_exit_code(returned)

    async def kill(self) -> None:
        """End its first process; the kernel ends the rest."""
        if self._first is not None:
            self._first.kill()
            await self._first.ended()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._monitor.wait(), KILL_WAIT_S)
        if self._monitor.returncode is None:
            self._monitor.kill()
            await self._monitor.wait()
        self._pipe.close()
        if self._first is not None:
            self._first.close()


class FirstProcess:
    """Hold the first process of a namespace by a descriptor, so that no other with the same number is meant."""

    def __init__(self, process_id: int, descriptor: int) -> None:
        self.process_id = process_id
        self._descriptor = descriptor
        self._has_ended = False

    def kill(self) -> None:
        """Kill it, and with it all others of the namespace."""
        if not self._has_ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    async def ended(self) -> None:
        """Wait until it and all others of the namespace are gone; one that hangs in the kernel is given up."""
        if self._has_ended:
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        # A descriptor of its own: two may wait, and each takes away its own.
        watched = os.dup(self._descriptor)
        loop.add_reader(watched, gone.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), KILL_WAIT_S)
            self._has_ended = True
        finally:
            loop.remove_reader(watched)
            os.close(watched)

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


async def read_first_process(descriptor: int) -> FirstProcess | None:
    """Return the process whose id bubblewrap tells through its `--info-fd`, None when it failed before."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader),
        open(descriptor, "rb", buffering=0),  # noqa: SIM115, ASYNC230
    )
    try:
        told = await reader.readuntil(b"}")
        process_id = int(json.loads(told)["child-pid"])
        return FirstProcess(process_id, os.pidfd_open(process_id))
    except (asyncio.IncompleteReadError, ValueError, KeyError, ProcessLookupError):
        return None
    finally:
        transport.close()
