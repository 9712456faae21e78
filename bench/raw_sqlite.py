"""Bare SQLite, WAL and FULL: one head update and one event row per commit, the window kept in a list."""

from __future__ import annotations

from pathlib import Path

import orjson

from bench.raw_schema import add_head, connect, write_event
from bench.stopwatch import Stopwatch
from bench.workload import WINDOW, event_dicts, turns


def turns_floor(directory: Path, *, count: int) -> dict[str, float]:
    """Commit every event by itself; take the last 200 at each turn."""
    conversation = [event_dicts(turn, session_id="sess_raw") for turn in turns(count)]
    connection = connect(directory / "raw.sqlite")
    session = add_head(connection, "sess_raw")
    window: list[dict[str, object]] = []
    seq = shown = 0
    watch = Stopwatch()
    for events in conversation:
        for event in events:
            seq += 1
            event["seq"] = seq
            body = orjson.dumps(event)
            connection.execute("BEGIN IMMEDIATE")
            write_event(connection, event, session=session, seq=seq, body=body)
            connection.execute("COMMIT")
            window.append(event)
        del window[:-WINDOW]
        shown += len(list(window))
        watch.lap()
    report = watch.report()
    connection.close()
    return report | {"bytes": (directory / "raw.sqlite").stat().st_size, "shown": shown}


if __name__ == "__main__":
    from bench.alone import main

    main("bench.raw_sqlite:turns_floor", {"count": 2000}, quick={"count": 300})
