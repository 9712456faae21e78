"""Time openings: the first in a process, and the usual one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sized
from typing import TypeVar

REPEATS = 30
T = TypeVar("T")


def time_openings(open_store: Callable[[], T], read: Callable[[T], Sized]) -> dict[str, float]:
    """Return milliseconds of the first opening with its store, and medians of the repeats without and with it.

    `read` closes what `open_store` opened.
    """
    whole_ms, read_ms = [], []
    shown = 0
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        store = open_store()
        opened_s = time.perf_counter()
        shown = len(read(store))
        end_s = time.perf_counter()
        whole_ms.append((end_s - start_s) * 1000)
        read_ms.append((end_s - opened_s) * 1000)
    return {
        "first_ms": whole_ms[0],
        "open_ms": statistics.median(read_ms[1:]),
        "with_store_ms": statistics.median(whole_ms[1:]),
        "shown": float(shown),
    }
