"""Where a session's anchors (instruction, summary, rewind, window, memory boundary, pins) stood at an earlier point of its history."""

from __future__ import annotations

from typing import Any

from kipu.context.item import Item
from kipu.context.log_view import standing
from kipu.events.boundary import CompactionEvent, RewindEvent
from kipu.events.conversation import InstructionEvent
from kipu.manager.history import LiveHistory


async def anchors_at(history: LiveHistory, seq: int) -> dict[str, Any]:
    """Return the anchors as head fields, as they were after event `seq`; the chains of `previous_seq` lead there."""
    row = history.row
    said = await _undone_anchors(history, seq)
    return {
        "instruction_seq": await _chained(history, said.get("instruction_seq", row.get("instruction_seq", 0)), seq),
        "compaction_seq": await _chained(history, said.get("compaction_seq", row.get("compaction_seq", 0)), seq),
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


async def _undone_anchors(history: LiveHistory, seq: int) -> dict[str, int]:
    """Return where the chains begin at a point that was undone: the head says where they began after the rewind."""
    hides, newest = None, history.row.get("rewind_seq", 0)
    while newest > seq:
        found = (await history.reader.at([newest])).get(newest)
        if found is None or not isinstance(found.event, RewindEvent):
            break
        hides = found.event if found.event.to_seq < seq else hides
        newest = found.event.previous_seq
    if hides is None:
        return {}
    anchors = {"instruction_seq": hides.instruction_seq, "compaction_seq": hides.compaction_seq}
    until, after = seq, hides.to_seq
    undone: list[Item] = []
    while page := await history.reader.backwards(until=until, after=after):
        undone += page
        until = page[-1].seq - 1
    for item in standing(undone[::-1]):
        if isinstance(item.event, InstructionEvent | CompactionEvent):
            name = "instruction_seq" if isinstance(item.event, InstructionEvent) else "compaction_seq"
            anchors[name] = item.seq
    return anchors
