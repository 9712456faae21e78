"""What the index remembers of a session's log, so that it is neither parsed nor believed blindly."""

from __future__ import annotations

from typing import NamedTuple

from kipu.ports.head import JsonObject


class LogEntry(NamedTuple):
    """A log as it was when its head was computed: the last segment's number, size, time and inode, and the head row."""

    session_id: str
    segment: int
    size: int  # bytes up to the end of the last whole batch
    mtime_ns: int
    inode: int
    healthy: bool
    offsets: tuple[tuple[int, int], ...]  # (seq, offset) of the last events in the last segment (B50)
    row: JsonObject
