"""Where a session's anchors (instruction, summary, rewind, window, memory boundary, pins) stood at an earlier point of its history."""

from __future__ import annotations

from typing import Any

from kipu.manager.history import LiveHistory


async def anchors_at(history: LiveHistory, seq: int) -> dict[str, Any]:
    """Return the anchors as head fields, as they were after event `seq`; the chains of `previous_seq` lead there."""
    row = history.row
    return {
        "instruction_seq": await _chained(history, row.get("instruction_seq", 0), seq),
        "compaction_seq": await _chained(history, row.get("compaction_seq", 0), seq),
        "rewind_seq": await _chained(history, row.get("rewind_seq", 0), seq),
        "window_seq": row.get("window_seq", 0) if row.get("window_seq", 0) <= seq else 0,
        "consolidated_seq": min(row.get("consolidated_seq", 0), seq),
        "pins": [pin for pin in row.get("pins", ()) if pin <= seq],
    }


async def _chained(history: LiveHistory, newest: int, seq: int) -> int:
    while newest > seq:
        found = (await history.reader.at([newest])).get(newest)
        newest = getattr(found.event, "previous_seq", 0) if found else 0
    return newest
