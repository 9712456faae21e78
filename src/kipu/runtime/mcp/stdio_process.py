"""A server as a child process: started with its own environment only, and gone when it is said to be."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kipu.ports.owner import Liveness

STDERR_BYTES = 4_096
MARK = "KIPU_MCP_CHILD"
# What a program needs to start at all. Everything else, credentials above all, is given to a server by its configuration.
INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# What is killed cannot refuse, but a busy system may be slow to see it out.
_KILLED_S = 10.0
_POLL_S = 0.01


class StdioProcess:
    """One running server and everything it starts: a process group, and by a mark in the environment also who left it."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._keep_stderr())

    @classmethod
    async def start(
        cls, command: str, args: Sequence[str], *, environment: Mapping[str, str], cwd: str | None, mark: str
    ) -> StdioProcess:
        """Start it in a session of its own. Raises: OSError, ValueError (it cannot be started)."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            command,
            *args,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**environment, MARK: mark},
            cwd=cwd,
            start_new_session=True,
        )
        return cls(process, mark)

    @property
    def pid(self) -> int:
        """Return its process id, which is also its group's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """Return the end of what it wrote to stderr."""
        return self._stderr.decode(errors="replace").strip()

    async def read(self, max_bytes: int) -> bytes:
        """Return what it wrote to stdout since, b"" at its end."""
        return await self._process.stdout.read(max_bytes) if self._process.stdout else b""

    async def write(self, data: bytes) -> None:
        """Write to its stdin. Raises: OSError (it does not read any more)."""
        if self._process.stdin is None or self._process.stdin.is_closing():
            raise BrokenPipeError
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def exited(self, seconds: float) -> None:
        """Wait that long for its end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.exit_code is None:  # noqa: ASYNC110 - `Process.wait` waits for the pipes too
                    await asyncio.sleep(_POLL_S)

    async def stop(self, *, grace_s: float) -> bool:
        """End it and all it started: its stdin is closed, then SIGTERM, then SIGKILL, `grace_s` between them. True: none is left."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._wait(grace_s)
        strays = _marked(self._mark)
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, grace_s + _KILLED_S)):
            reached = [self._group(number), *(_send(pid, number) for pid in strays)]
            if not any(reached):
                break
            await self._wait(wait_s, strays)
            strays = _marked(self._mark)
        self._drain.cancel()
        with suppress(asyncio.CancelledError):
            await self._drain
        transport = getattr(self._process, "_transport", None)  # a survivor that holds a pipe would keep it open
        if transport is not None:
            with suppress(PermissionError):
                transport.close()
        if is_gone := not self._group(0):
            await self.exited(grace_s)  # it was waited for, of which the thread that did so tells the loop in a moment
        return is_gone and not strays

    async def _wait(self, seconds: float, strays: Sequence[int] = ()) -> None:
        """Wait until none is left. Not `Process.wait`: that waits for the pipes, which a grandchild may hold."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Polled, since the system tells nobody when a group is empty.
                while self.exit_code is None or self._group(0) or any(_send(pid, 0) for pid in strays):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)

    def _group(self, number: int) -> bool:
        """Send it to the group; say whether there was anybody."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    async def _keep_stderr(self) -> None:
        stream = self._process.stderr
        while stream is not None and (data := await stream.read(65_536)):
            self._stderr += data
            del self._stderr[:-STDERR_BYTES]


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end_orphans(liveness: Liveness) -> list[int]:
    """Kill the servers of processes that are dead, such as one that was killed, and return their ids. Blocking."""
    orphans = [pid for pid, mark in _marks() if liveness.is_dead(mark)]
    for pid in orphans:
        _send(pid, signal.SIGKILL)
    return orphans


def _marked(mark: str) -> list[int]:
    return [pid for pid, other in _marks() if other == mark]


def _marks() -> Iterator[tuple[int, str]]:
    """Yield the processes that carry a mark, where the system shows environments (Linux)."""
    prefix = f"{MARK}=".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for variable in (entry / "environ").read_bytes().split(b"\0"):
                if variable.startswith(prefix):
                    yield int(entry.name), variable[len(prefix) :].decode(errors="replace")
