"""What a running command uses, and whether that is too much."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.process_tree import PROC

LimitName: TypeAlias = Literal["memory", "processes", "disk", "files"]
BLOCK = 512
# A walk over the files may take this share of the time.
WALK_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class DiskState:
    """What was free on the file systems that a command can write to."""

    free_bytes: int
    free_files: int


class UsageWatch:
    """Compare a command's sums with its limits.

    Free space is cheap to ask, so the files are only counted when the disk has lost as much as the command may take: files
    changed since its start, and those that are open and deleted. What others write beside it is never blamed on it.
    """

    def __init__(
        self, limits: CommandLimits, writable: Sequence[Path], *, started_s: float, monotonic: Callable[[], float]
    ) -> None:
        """`started_s` is the time of day at which it started, in the file system's terms."""
        self._limits = limits
        self._writable = writable
        self._started_s = started_s
        self._monotonic = monotonic
        self._before = _disk_state(writable)
        self._next_walk = 0.0
        self.is_near = False

    def exceeded(self, processes: Sequence[int]) -> LimitName | None:
        """Return which limit the command is over. Blocking."""
        limits = self._limits
        if len(processes) > limits.processes:
            return "processes"
        memory = _resident_bytes(processes)
        self.is_near = memory > limits.memory_bytes // 4
        in_memory, on_disk = _unnamed_bytes(processes)
        is_over = memory + in_memory > limits.memory_bytes
        # Shared pages were counted in each process: count again, by shares.
        if is_over and _proportional_bytes(processes) + in_memory > limits.memory_bytes:
            return "memory"
        return self._exceeded_disk(on_disk)

    def _exceeded_disk(self, unnamed: int) -> LimitName | None:
        limits = self._limits
        now = _disk_state(self._writable)
        lost_bytes, lost_files = self._before.free_bytes - now.free_bytes, self._before.free_files - now.free_files
        self.is_near |= lost_bytes > limits.growth_bytes // 4 or lost_files > limits.new_files // 4
        if lost_bytes < limits.growth_bytes and lost_files < limits.new_files:
            return None
        if unnamed > limits.growth_bytes:
            return "disk"
        began = self._monotonic()
        if began < self._next_walk:
            return None
        size, count = _changed_since(self._started_s, self._writable)
        ended = self._monotonic()
        self._next_walk = ended + (ended - began) / WALK_SHARE
        if lost_bytes >= limits.growth_bytes and size + unnamed > limits.growth_bytes:
            return "disk"
        return "files" if lost_files >= limits.new_files and count > limits.new_files else None


def _disk_state(places: Iterable[Path]) -> DiskState:
    free_bytes = free_files = 0
    seen: set[int] = set()
    for place in places:
        with contextlib.suppress(OSError):
            device = place.stat().st_dev
            if device not in seen:
                seen.add(device)
                answer = os.statvfs(place)
                free_bytes += answer.f_bfree * answer.f_frsize
                free_files += answer.f_ffree
    return DiskState(free_bytes, free_files)


def _changed_since(started_s: float, places: Iterable[Path]) -> tuple[int, int]:
    size = count = 0
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                with contextlib.suppress(OSError):
                    found = os.lstat(f"{folder}/{name}")
                    if found.st_ctime >= started_s:
                        size += found.st_blocks * BLOCK
                        count += 1
    return size, count


def _resident_bytes(processes: Iterable[int]) -> int:
    pages = 0
    for process in processes:
        with contextlib.suppress(OSError, IndexError):
            pages += int((PROC / str(process) / "statm").read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _proportional_bytes(processes: Iterable[int]) -> int:
    kilobytes = 0
    for process in processes:
        with contextlib.suppress(OSError):
            for line in (PROC / str(process) / "smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    kilobytes += int(line.split()[1])
                    break
    return kilobytes * 1024


def _unnamed_bytes(processes: Iterable[int]) -> tuple[int, int]:
    """Return what open files without a name hold, in memory and on disk: no walk over directories finds those."""
    in_memory = on_disk = 0
    seen: set[tuple[int, int]] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for entry in os.scandir(PROC / str(process) / "fd"):
                with contextlib.suppress(OSError):
                    found = os.stat(entry.path)  # noqa: PTH116
                    key = (found.st_dev, found.st_ino)
                    if found.st_nlink or not stat.S_ISREG(found.st_mode) or key in seen:
                        continue
                    seen.add(key)
                    if os.major(found.st_dev) == 0:
                        in_memory += found.st_blocks * BLOCK
                    else:
                        on_disk += found.st_blocks * BLOCK
    return in_memory, on_disk
