"""What one command may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Bounds of one command with everything it starts. None means that there is no such bound.

    `process_memory_bytes` is held by the kernel for each process (its writable private memory, so that programs which only
    reserve address space run). `memory_bytes`, `growth_bytes` and `new_files` are sums over the command, looked at every
    `watch_interval_s`; what is over them is killed. `processes` is held by the kernel where the command has a user id of its
    own, and watched everywhere.
    """

    wall_s: float = 120.0
    max_wall_s: float = 1800.0
    cpu_s: int | None = 3600
    memory_bytes: int = 4096 * MIB
    process_memory_bytes: int = 4096 * MIB
    shared_memory_bytes: int = 256 * MIB
    processes: int = 512
    open_files: int = 4096
    file_bytes: int = 2048 * MIB
    growth_bytes: int = 4096 * MIB
    new_files: int = 500_000
    kept_output_bytes: int = MIB
    live_bytes_per_s: int = 256 * 1024
    grace_s: float = 2.0
    watch_interval_s: float = 0.1
    background_processes: int = 16
