"""Another process at the same place: a fresh interpreter that runs one pickled job.

A job is an importable async function that takes a place, a clock and plain arguments and returns something plain. Its
acknowledgements go out by `Outlet.tell`, one line each, written at once, so that a killed process has told all it knew.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kipu.testing.conformance.place import Place
from kipu.testing.fakes import FakeClock

Job = Callable[..., Awaitable[Any]]
_START = "from kipu.testing.conformance.second_process import main; main()"


class Outlet:
    """Where a job tells what it knows, line by line, past every buffer."""

    def tell(self, value: Any) -> None:
        """Write one line of JSON to the pipe."""
        os.write(1, json.dumps(value).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: what it told, and its exit code (negative: the signal that killed it)."""

    told: list[Any]
    code: int
    errors: str


def command(job: Job, place: Place, **arguments: Any) -> list[str]:
    """Return the command line that runs `job(place, outlet, clock, **arguments)` in a fresh interpreter."""
    payload = base64.b64encode(pickle.dumps((job, place, arguments))).decode()
    return [sys.executable, "-c", _START, payload]


def environment() -> dict[str, str]:
    """Return the environment in which the other process finds the same modules as this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


async def start(job: Job, place: Place, **arguments: Any) -> asyncio.subprocess.Process:
    """Start a job in another process; its lines come through `stdout`."""
    return await asyncio.create_subprocess_exec(
        *command(job, place, **arguments),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    """Wait for a job to end and return what it told; a last line that was cut by a kill counts as not told."""
    out, errors = await process.communicate()
    lines = out.split(b"\n")[:-1]
    return Ended([json.loads(line) for line in lines], process.returncode or 0, errors.decode(errors="replace")[-2000:])


async def run_in_processes(job: Job, place: Place, *, arguments: list[dict[str, Any]]) -> list[Ended]:
    """Run a job in as many processes as there are arguments, all at once."""
    processes = await asyncio.gather(*(start(job, place, **each) for each in arguments))
    return list(await asyncio.gather(*(ended(process) for process in processes)))


def main() -> None:
    """Run the job that the command line carries."""
    job, place, arguments = pickle.loads(base64.b64decode(sys.argv[1]))  # noqa: S301 - our own parent wrote it
    asyncio.run(job(place, Outlet(), clock=FakeClock(), **arguments))
