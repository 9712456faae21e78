"""Time openings: the first in a process, and the usual one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sized

REPEATS = 30


def time_openings(read: Callable[[], Sized], *, repeats: int = REPEATS) -> dict[str, float]:
    """Return milliseconds of the first call and the median of the repeats."""
    laps_ms = []
    shown = 0
    for _ in range(repeats + 1):
        start_s = time.perf_counter()
        shown = len(read())
        laps_ms.append((time.perf_counter() - start_s) * 1000)
    return {"first_ms": laps_ms[0], "open_ms": statistics.median(laps_ms[1:]), "shown": float(shown)}
