"""Kipu on W3: open a session with a new store and manager, and build its window of 200."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.kipu_store import POLICY, store_url, turn_events
from bench.memory import Memory
from bench.opening import REPEATS
from bench.workload import EVENTS_PER_TURN, turns
from kipu import SessionEvent, UserMessageEvent, open_manager

SESSION_ID = "sess_bench"
BATCH_EVENTS = 400
DISTINCT_TURNS = 64


def build(directory: Path, *, store: str, events: int) -> dict[str, float]:
    """Write a session of so many events through the manager, without fsync: only the reading is measured."""
    return asyncio.run(_build(directory, store=store, events=events))


async def _build(directory: Path, *, store: str, events: int) -> dict[str, float]:
    url = store_url(store, directory, durability="os")
    source = _endless()
    async with await open_manager(url, policy=POLICY) as manager:
        session = await manager.open(await manager.create_session(SESSION_ID))
        async with session.holding():
            for _ in range(events // BATCH_EVENTS):
                await session.add_events(list(islice(source, BATCH_EVENTS)))
            await session.get_context_for_llm()
            await session.add_events(list(islice(source, events % BATCH_EVENTS)))
        return {"events": float(session.head.event_count)}


def _endless() -> Iterator[SessionEvent]:
    """Yield turns for ever; call ids stay unique, as ours are."""
    distinct = turns(DISTINCT_TURNS)
    number = 0
    while True:
        for turn in distinct:
            number += EVENTS_PER_TURN
            for event in turn_events(turn):
                change = {"tool_call_id": f"call_{number}"} if hasattr(event, "tool_call_id") else {}
                yield event.model_copy(update=change)


def open_session(directory: Path, *, store: str, fixture: str) -> dict[str, float]:
    """Time openings; the store and the manager are new each time, and nothing of them is kept."""
    del directory
    return asyncio.run(_open_session(Path(fixture), store=store))


async def _open_session(fixture: Path, *, store: str) -> dict[str, float]:
    url = store_url(store, fixture)
    # The code of the store and the manager is loaded before: what is asked is what a session adds.
    with tempfile.TemporaryDirectory() as empty:
        async with await open_manager(store_url(store, Path(empty)), policy=POLICY) as other:
            session = await other.get_or_create("bench:empty")
            await session.add_event(UserMessageEvent(content="x"))
            await session.get_context_for_llm()
    memory = Memory()
    whole_ms, session_ms, shown = [], [], 0
    grown: dict[str, float] = {}
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        manager = await open_manager(url, policy=POLICY)
        opened_s = time.perf_counter()
        session = await manager.open(SESSION_ID)
        shown = len(await session.get_context_for_llm())
        end_s = time.perf_counter()
        grown = grown or memory.grown()  # one session's: what thirty leave to the collector is another question
        await manager.close()
        whole_ms.append((end_s - start_s) * 1000)
        session_ms.append((end_s - opened_s) * 1000)
    report = {
        "first_ms": whole_ms[0],
        "open_ms": statistics.median(session_ms[1:]),
        "with_store_ms": statistics.median(whole_ms[1:]),
        "shown": float(shown),
    }
    return report | grown
