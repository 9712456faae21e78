"""The raw side of W3: the last 200 events from the end of a log, parsed, in JSONL and in SQLite."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw
import orjson

from bench.memory import Memory
from bench.opening import time_openings
from bench.raw_schema import INSERT_EVENT, add_head, connect
from bench.workload import WINDOW, event_dicts, turns

BLOCK = 64 * 1024
DISTINCT_TURNS = 64
T = TypeVar("T")


def _bodies(events: int) -> list[bytes]:
    """Return the bodies of a few distinct turns, to be repeated: a fixture has up to a million events."""
    count = min(DISTINCT_TURNS, events // 4)
    return [orjson.dumps(event) for turn in turns(count) for event in event_dicts(turn, session_id="sess_raw")]


def build_jsonl(directory: Path, *, events: int) -> dict[str, float]:
    """Write a log of so many events."""
    bodies = _bodies(events)
    with (directory / "raw.jsonl").open("wb", buffering=1 << 20) as file:
        for seq in range(1, events + 1):
            file.write(b'{"seq":%d,%b\n' % (seq, bodies[seq % len(bodies)][1:]))
    return {"bytes": (directory / "raw.jsonl").stat().st_size}


def build_sqlite(directory: Path, *, events: int) -> dict[str, float]:
    """Write the same log as rows."""
    connection = connect(directory / "raw.sqlite")
    bodies = _bodies(events)
    add_head(connection, "sess_raw")
    rows = ((1, seq, str(seq), "note", "2026", 1, None, bodies[seq % len(bodies)]) for seq in range(1, events + 1))
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT_EVENT, rows)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return {"bytes": (directory / "raw.sqlite").stat().st_size}


def tail_of_file(path: Path, *, count: int) -> list[dict[str, object]]:
    """Return the last `count` events, reading blocks from the end."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = os.fstat(file).st_size
        blocks: list[bytes] = []
        breaks = 0
        while end and breaks <= count:
            start = max(0, end - BLOCK)
            blocks.append(os.pread(file, end - start, start))
            breaks += blocks[-1].count(b"\n")
            end = start
    finally:
        os.close(file)
    return [orjson.loads(line) for line in b"".join(blocks[::-1]).split(b"\n")[-count - 1 : -1]]


def tail_of_table(connection: apsw.Connection, *, count: int) -> list[dict[str, object]]:
    """Return the last `count` events by an index walk, and close the connection."""
    number, _ = connection.execute("SELECT id, data FROM heads WHERE session_id = 'sess_raw'").fetchone()
    query = "SELECT seq, body FROM events WHERE session = ? ORDER BY seq DESC LIMIT ?"
    events = [orjson.loads(body) for _, body in connection.execute(query, (number, count))]
    connection.close()
    return events[::-1]


def open_jsonl(directory: Path, *, fixture: str) -> dict[str, float]:
    """Time the tail read of a log file."""
    del directory
    return _time(lambda: Path(fixture) / "raw.jsonl", lambda path: tail_of_file(path, count=WINDOW))


def open_sqlite(directory: Path, *, fixture: str) -> dict[str, float]:
    """Time the tail read of a table over a new connection."""
    del directory
    return _time(
        lambda: connect(Path(fixture) / "raw.sqlite"), lambda connection: tail_of_table(connection, count=WINDOW)
    )


def _time(open_store: Callable[[], T], read: Callable[[T], list[dict[str, object]]]) -> dict[str, float]:
    memory = Memory()
    report = time_openings(open_store, read)
    return report | memory.grown()
