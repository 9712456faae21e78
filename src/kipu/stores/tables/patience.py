"""How long a question to a database may take in the event loop, where a hop to a thread costs more than most answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import apsw

T = TypeVar("T")

# Together about a millisecond of the engine's steps: what a page of a list takes when its filter lets most heads through.
_STEPS_BETWEEN_LOOKS = 5_000
_LOOKS = 4
_QUICK_S = 0.002


def answer_soon(connection: apsw.Connection, question: Callable[[apsw.Connection], T]) -> T:
    """Return the answer if it takes few steps. Raises: apsw.InterruptError once it turns out to take many."""
    looks = 0

    def takes_long() -> bool:
        nonlocal looks
        looks += 1
        return looks > _LOOKS

    connection.set_progress_handler(takes_long, _STEPS_BETWEEN_LOOKS)
    try:
        return question(connection)
    finally:
        connection.set_progress_handler(None)


class Pace:
    """Know whether searches have been quick of late: within the search index the engine counts no steps."""

    def __init__(self) -> None:
        self._average_s = 0.0

    @property
    def are_quick(self) -> bool:
        """Return True while the average is below what a hop to a thread is worth."""
        return self._average_s < _QUICK_S

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what is done inside as one search."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self._average_s += 0.3 * (time.perf_counter() - start_s - self._average_s)
