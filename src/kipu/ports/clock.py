"""Time and chance as arguments, so that everything else is deterministic."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """Tell the time of day. Nothing is ordered by it (C1): it only labels events and ends leases."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        ...


class Entropy(Protocol):
    """Give random bytes for ids."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` unpredictable bytes."""
        ...


@runtime_checkable
class SharedTime(Protocol):
    """Be a store whose processes go by one clock, whatever the clocks of their machines say."""

    @property
    def clock(self) -> Clock:
        """Return the clock that they share."""
        ...
