"""A turn that kills its process whenever it is taken up ends by itself, and takes no other turn with it (C14)."""

from __future__ import annotations

import asyncio
import multiprocessing
from pathlib import Path

from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.wiring import open_manager
from tests.acceptance.runtime import soak_poison_worker
from tests.acceptance.runtime.fakes import of_type

INNOCENT = 8
MOST_DEATHS = 25


async def test_turn_that_kills_its_process_takes_no_other_with_it(tmp_path: Path) -> None:
    """It is given up after some tries; the turns that ran beside it each time are all answered (A41, C14)."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with await open_manager(url) as manager:
        sessions = [await manager.get_or_create(f"test:{number}") for number in range(INNOCENT + 1)]
        for number, session in enumerate(sessions):
            text = "poison" if number == INNOCENT // 2 else "a question"
            await session.add_event(UserMessageEvent(content=text, queued=True))
        deaths = 0
        while await _dies(url):
            deaths += 1
            assert deaths < MOST_DEATHS
        outcomes = [[event.outcome for event in await of_type(session, TurnFinishedEvent)] for session in sessions]
    assert outcomes.pop(INNOCENT // 2) == ["failed"]
    assert outcomes == [["completed"]] * INNOCENT
    assert deaths >= 5


async def _dies(url: str) -> bool:
    """Let a worker process work until it dies (True) or has nothing more to do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.acceptance.runtime.soak_poison_worker"])
    worker = context.Process(target=soak_poison_worker.main, args=(url,), daemon=True)
    worker.start()
    await asyncio.to_thread(worker.join, 60)
    assert worker.exitcode in (0, -9)
    return worker.exitcode == -9
