"""The floor of W1: one os.write and one fdatasync per event, the window kept in a list."""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from bench.stopwatch import Stopwatch
from bench.workload import WINDOW, event_dicts, turns


def turns_floor(directory: Path, *, count: int) -> dict[str, float]:
    """Append every event durably by itself; take the last 200 at each turn."""
    conversation = [event_dicts(turn, session_id="sess_raw") for turn in turns(count)]
    window: list[dict[str, object]] = []
    shown = 0
    file = os.open(directory / "raw.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    seq = 0
    watch = Stopwatch()
    for events in conversation:
        for event in events:
            seq += 1
            event["seq"] = seq
            line = orjson.dumps(event) + b"\n"
            if os.write(file, line) != len(line):
                raise OSError("short write")
            os.fdatasync(file)
            window.append(event)
        del window[:-WINDOW]
        shown += len(list(window))
        watch.lap()
    report = watch.report()
    os.close(file)
    return report | {"bytes": (directory / "raw.jsonl").stat().st_size, "shown": shown}


if __name__ == "__main__":
    from bench.alone import main

    main("bench.raw_jsonl:turns_floor", {"count": 2000}, quick={"count": 300})
