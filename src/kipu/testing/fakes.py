"""Deterministic time, chance and liveness: what tests hand to a store in place of the machine's."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

_START_US = 1_800_000_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_text(unix_us: int) -> str:
    """Return ISO 8601 UTC text with microseconds and `Z`, which sorts as text."""
    return (_EPOCH + timedelta(microseconds=unix_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FakeClock:
    """A clock that moves only when told to. Pickles with its time, so that another process starts from there."""

    def __init__(self, start_us: int = _START_US) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        """Return the time that was set."""
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move on, or back with a negative number."""
        self._now_us += round(seconds * 1_000_000)

    def iso(self, offset_s: float = 0) -> str:
        """Return now plus an offset as ISO text."""
        return iso_text(self._now_us + round(offset_s * 1_000_000))


class SkewedClock:
    """Another host's clock: the same time plus a constant error."""

    def __init__(self, clock: FakeClock, *, offset_s: float) -> None:
        self._clock = clock
        self._offset_us = round(offset_s * 1_000_000)

    def now_us(self) -> int:
        """Return the other clock's time plus the offset."""
        return self._clock.now_us() + self._offset_us


class SeededEntropy:
    """Bytes that look random and are the same in every run with the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the sequence."""
        return self._random.randbytes(count)


class FakeLiveness:
    """Knows as dead exactly the owners that a test has killed."""

    def __init__(self) -> None:
        self._dead: set[str] = set()

    def is_dead(self, owner: str) -> bool:
        """Return True for an owner that was killed here."""
        return owner in self._dead

    def kill(self, owner: str) -> None:
        """Let `owner` be dead from now on."""
        self._dead.add(owner)
