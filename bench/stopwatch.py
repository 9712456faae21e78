"""Time turns one by one and say how the last compare with the first. Standard library only."""

from __future__ import annotations

import statistics
import time

EDGE = 100


class Stopwatch:
    """Keep the duration of every lap and the wall and CPU time of them all."""

    def __init__(self) -> None:
        self.laps_s: list[float] = []
        self._cpu_start_s = time.process_time()
        self._start_s = self._last_s = time.perf_counter()

    def lap(self) -> None:
        """End the current lap."""
        now_s = time.perf_counter()
        self.laps_s.append(now_s - self._last_s)
        self._last_s = now_s

    def report(self) -> dict[str, float]:
        """Return wall, CPU, milliseconds a lap, the tail, and last over first (medians of the edge laps)."""
        wall_s = time.perf_counter() - self._start_s
        edge = min(EDGE, max(1, len(self.laps_s) // 3))
        first = statistics.median(self.laps_s[:edge])
        last = statistics.median(self.laps_s[-edge:])
        ordered = sorted(self.laps_s)
        return {
            "wall_s": wall_s,
            "cpu_s": time.process_time() - self._cpu_start_s,
            "ms_per_turn": wall_s * 1000 / len(self.laps_s),
            "p50_ms": statistics.median(ordered) * 1000,
            "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
            "last_over_first": last / first,
            "last_over_first_sum": sum(self.laps_s[-edge:]) / sum(self.laps_s[:edge]),
        }
