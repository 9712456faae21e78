"""Kill a process in the middle of appending, and know what it was told."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from kipu.testing.conformance.jobs import append_until_killed
from kipu.testing.conformance.place import Place
from kipu.testing.conformance.second_process import command, environment

_SPENT_S = 5.0


@dataclass(frozen=True, slots=True)
class Killed:
    """What a killed writer was told before: (seq, number) of each acknowledged event."""

    name: str
    told: list[tuple[int, int]]


def kill_writer(place: Place, *, acknowledged: int, then_s: float = 0.0, **job: Any) -> Killed:
    """Start a writer (`append_until_killed` with `job`) and SIGKILL it `then_s` after its `acknowledged`-th acknowledgement.

    With `shot` among the job's arguments the writer dies in the middle of a write of its own, and no signal is sent here
    unless that shot misses (a store that does not write through `os.write`).
    """
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command(append_until_killed, place, **job), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("the writer must have pipes")
        out = b""
        if job.get("shot") is not None:
            try:
                out, _ = process.communicate(timeout=_SPENT_S + 30)
            except subprocess.TimeoutExpired:
                process.kill()
        else:
            out = _lines(process, acknowledged)
            deadline = time.perf_counter() + then_s
            while time.perf_counter() < deadline:
                pass
            process.kill()
        rest, errors = process.communicate() if not process.stdout.closed else (b"", b"")
        if process.returncode != -9:
            raise AssertionError(f"the writer ended by itself: {errors.decode(errors='replace')[-2000:]}")
    complete = (out + rest).split(b"\n")[:-1]
    return Killed(str(job["name"]), [(seq, number) for seq, number, _ in map(json.loads, complete)])


def _lines(process: subprocess.Popen[bytes], count: int) -> bytes:
    lines: list[bytes] = []
    while process.stdout is not None and len(lines) < count:
        line = process.stdout.readline()
        if not line:
            break
        lines.append(line)
    return b"".join(lines)
