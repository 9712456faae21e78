"""The processes of this machine as a tree, read from /proc; empty where there is none."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def descendants_of(root: int) -> list[int]:
    """Return the ids of all living processes below `root`, itself left out; zombies are not alive."""
    children: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
    for process in process_ids():
        stat = read_stat(process)
        if stat is not None:
            state, parent = stat
            children[parent].append((process, state not in "ZX"))
    found: list[int] = []
    waiting = [root]
    while waiting:
        for child, is_alive in children.pop(waiting.pop(), ()):
            waiting.append(child)
            if is_alive:
                found.append(child)
    return found


def process_ids() -> list[int]:
    """Return the ids of all processes."""
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def read_stat(process: int) -> tuple[str, int] | None:
    """Return a process's state letter and its parent, None when it is gone."""
    try:
        text = (PROC / str(process) / "stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may contain any character.
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1])


def marked_processes(marker: bytes) -> list[int]:
    """Return the ids of the processes that were started with `marker` in their environment."""
    found: list[int] = []
    for process in process_ids():
        with contextlib.suppress(OSError):
            if marker in (PROC / str(process) / "environ").read_bytes():
                found.append(process)
    return found


def count_tasks_of(uid: int) -> int:
    """Return how many threads a user runs, which is what the kernel's limit of processes counts."""
    count = 0
    for process in process_ids():
        with contextlib.suppress(OSError):
            place = PROC / str(process)
            if place.stat().st_uid == uid:
                count += len(os.listdir(place / "task"))  # noqa: PTH208
    return count


def send_signal(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
