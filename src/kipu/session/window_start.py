"""Where a window starts by what an event says. A file that was numbered elsewhere can say anything: no window starts behind that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kipu.events.boundary import RewindEvent


def recorded_in(record: Mapping[str, Any], *, seq: int) -> int | None:
    """Return the start that event `seq` (0: not stored yet) records; None where that is no number of an event up to it."""
    start = record.get("from")
    if not isinstance(start, int) or isinstance(start, bool):
        return None
    return start if 0 <= start <= (seq or start) else None


def rewound_to(rewind: RewindEvent) -> int:
    """Return the start after a rewind, 0 (none is recorded) where it lies in what was undone."""
    return rewind.window_seq if rewind.window_seq <= rewind.to_seq else 0
