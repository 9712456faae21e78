"""openai-agents' SQLiteSession on the figures' work. Runs in .venv-bench."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from agents import SQLiteSession

from bench.stopwatch import Stopwatch
from bench.workload import WINDOW, Turn, turns


def _items(turn: Turn) -> list[dict[str, object]]:
    call = {"type": "function_call", "call_id": turn.call_id, "name": "shell", "arguments": json.dumps(turn.call_input)}
    return [
        {"role": "user", "content": turn.user},
        call,
        {"type": "function_call_output", "call_id": turn.call_id, "output": turn.result},
        {"role": "assistant", "content": turn.answer},
    ]


async def _turn(session: SQLiteSession, turn: Turn) -> int:
    items = _items(turn)
    await session.add_items(items[:1])
    window = await session.get_items(limit=WINDOW)
    for item in items[1:]:
        await session.add_items([item])
    return len(window)


def one_session(directory: Path, *, count: int) -> dict[str, float]:
    """W1: every item its own durable append, a window of 200 loaded each turn."""

    async def run() -> dict[str, float]:
        conversation = turns(count)
        session = SQLiteSession("sess_peer", directory / "peer.db")
        watch = Stopwatch()
        for turn in conversation:
            await _turn(session, turn)
            watch.lap()
        return watch.report() | {"bytes": (directory / "peer.db").stat().st_size}

    return asyncio.run(run())


def many_sessions(directory: Path, *, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """W2: many sessions in one database, so many at once."""

    async def run() -> dict[str, float]:
        conversation = turns(turns_each)
        gate = asyncio.Semaphore(at_once)

        async def one(number: int) -> None:
            async with gate:
                session = SQLiteSession(f"sess_{number}", directory / "peer.db")
                for turn in conversation:
                    await _turn(session, turn)
                session.close()

        start_s = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(sessions)))
        wall_s = time.perf_counter() - start_s
        return {"wall_s": wall_s, "turns_per_s": sessions * turns_each / wall_s}

    return asyncio.run(run())
