"""A worker dies in the middle of a turn, on a host of which nobody knows: how soon another one goes on."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from pathlib import Path

from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import TurnFinishedEvent, TurnResumedEvent
from kipu.testing.scripted_model import ScriptedModelClient
from kipu.wiring import open_manager
from tests.acceptance.lost_time import counting_lost_time
from tests.acceptance.runtime import soak_frozen_worker as slow
from tests.acceptance.runtime.fakes import of_type, runtime
from tests.acceptance.runtime.fakes import until as until_event
from tests.acceptance.runtime.soak_worker import Book, Machine
from tests.acceptance.runtime.test_soak_frozen import told
from tests.servers import fresh_schema, postgres_url

LEASE_S = 3.0
AT_MOST_S = LEASE_S + 2.0


async def test_turn_of_a_killed_worker_goes_on_within_its_lease_and_two_seconds(tmp_path: Path) -> None:
    """Killed on a host that nobody can look into, a worker has its turn taken over when its lease ends, not before (C3, C14, B61)."""
    url, book = fresh_schema(postgres_url()), Book(tmp_path / "book")
    context = multiprocessing.get_context("forkserver")
    async with await open_manager(url, lease_ttl_s=LEASE_S) as manager:
        session = await manager.get_or_create("test:1")
        machine = Machine("elsewhere", lease_ttl_s=LEASE_S)
        victim = context.Process(target=slow.main, args=(url, str(tmp_path), machine), daemon=True)
        victim.start()
        try:
            await told(lambda: book.has_begun(victim.pid))
            await session.add_event(UserMessageEvent(content="go", queued=True))
            await told(lambda: ["ran", "first", "frozen"] in book.lines())
            tools = slow.frozen_tools(tmp_path, who="second worker")
            # As a worker is that looks for work as often as it does by itself, and was not told of this message.
            async with runtime(ScriptedModelClient(slow.answer), *tools, manager=manager, sweep_s=1.0):
                await asyncio.sleep(LEASE_S)  # its lease was renewed meanwhile
                async with counting_lost_time() as lost_s:
                    victim.kill()
                    killed_s = time.monotonic()
                    await until_event(session, TurnResumedEvent)
                    assert time.monotonic() - killed_s < AT_MOST_S + lost_s()
                await until_event(session, TurnFinishedEvent)
        finally:
            victim.kill()
        resumed = await of_type(session, TurnResumedEvent)
        assert len(resumed) == 1
        ran = [words[1:] for words in book.lines() if words[0] == "ran"]
        assert ran == [["first", "frozen"], ["second", "second worker"], ["third", "second worker"]]
