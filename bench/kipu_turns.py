"""Kipu on W1 and W2: every event its own durable append, heads, window and its digest included."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.kipu_store import POLICY, log_bytes, store_url, turn_events
from bench.stopwatch import Stopwatch
from bench.workload import RESULT_BYTES, Turn, turns
from kipu import Session, SessionManager, open_manager


async def _turn(session: Session, turn: Turn) -> int:
    """Append the question, build the window as any caller gets it, a copy, and the digest of a model call; append the rest."""
    user, *rest = turn_events(turn)
    await session.add_event(user)
    window = await session.get_context_for_llm("neutral")
    session.history.window.digest()
    for event in rest:
        await session.add_event(event)
    return len(window)


async def _new_session(manager: SessionManager) -> Session:
    return await manager.open(await manager.create_session())


def one_session(directory: Path, *, store: str, count: int) -> dict[str, float]:
    """W1, as a worker does it: the session's lock is held, so the window stays in memory."""
    return asyncio.run(_one_session(directory, store=store, count=count))


async def _one_session(directory: Path, *, store: str, count: int) -> dict[str, float]:
    conversation = turns(count)
    async with await open_manager(store_url(store, directory), policy=POLICY) as manager:
        session = await _new_session(manager)
        shown = 0
        async with session.holding():
            watch = Stopwatch()
            for turn in conversation:
                shown += await _turn(session, turn)
                watch.lap()
            report = watch.report()
        start_s = time.perf_counter()
        await manager.catch_up_index()
        index_s = time.perf_counter() - start_s
    units = sum(turn.payload_bytes for turn in conversation) / RESULT_BYTES
    report["index_ms_per_event"] = index_s * 1000 / units
    return report | log_bytes(store, directory) | {"shown": shown}


def many_sessions(directory: Path, *, store: str, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    """W2: many sessions of one manager, so many at once; creating and leasing them included."""
    return asyncio.run(_many(directory, store=store, sessions=sessions, turns_each=turns_each, at_once=at_once))


async def _many(directory: Path, *, store: str, sessions: int, turns_each: int, at_once: int) -> dict[str, float]:
    conversation = turns(turns_each)
    gate = asyncio.Semaphore(at_once)
    async with await open_manager(store_url(store, directory), policy=POLICY) as manager:

        async def one() -> None:
            async with gate:
                session = await _new_session(manager)
                async with session.holding():
                    for turn in conversation:
                        await _turn(session, turn)

        start_s = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(sessions)))
        wall_s = time.perf_counter() - start_s
    return {"wall_s": wall_s, "turns_per_s": sessions * turns_each / wall_s}
