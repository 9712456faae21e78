"""What a run has started and must end: a worker of a parallel run may go without what Python does at its exit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

_ENDS: list[Callable[[], object]] = []


def at_end(end: Callable[[], object]) -> None:
    """Call this when the run's last test is over."""
    _ENDS.append(end)


def end_all() -> None:
    """Call what was asked for, the last first; whatever one raises, the others are ended."""
    while _ENDS:
        with suppress(Exception):
            _ENDS.pop()()
