"""Workers on machines whose clocks are five minutes off: what has a time goes by the time of the server."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from pathlib import Path

import pytest

from kipu.events.conversation import AgentMessageEvent
from kipu.events.turn import MessageSettledEvent
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.wiring import open_manager
from tests.acceptance.many_machines.machines import FIVE_MINUTES_S
from tests.acceptance.runtime import soak_worker
from tests.acceptance.runtime.fakes import of_type
from tests.acceptance.runtime.fakes import until as until_event
from tests.acceptance.runtime.soak_worker import Book, Machine
from tests.acceptance.runtime.test_soak_frozen import told
from tests.servers import fresh_schema, postgres_url


@pytest.mark.parametrize("off_s", [-FIVE_MINUTES_S, FIVE_MINUTES_S])
async def test_worker_with_a_wrong_clock_keeps_times_to_wait_and_to_live(tmp_path: Path, off_s: float) -> None:
    """Five minutes early it lets nothing expire, five minutes late it leaves nothing lying, and it stamps the right time (B61, C1, C12)."""
    url = fresh_schema(postgres_url())
    machine = Machine("elsewhere", clock_off_s=off_s)
    arguments = (url, str(tmp_path / "book"), 1, {"sweep_s": 0.2}, machine)
    worker = multiprocessing.get_context("forkserver").Process(target=soak_worker.main, args=arguments, daemon=True)
    worker.start()
    try:
        await told(lambda: Book(tmp_path / "book").has_begun(worker.pid))
        async with await open_manager(url) as manager:
            policy = {"mode": "collect", "debounce_ms": 100, "max_wait_ms": 200, "ttl_ms": 60_000}
            message = InboundEvent(channel="test", chat_id="1", sender_id="ada", content="hello", policy=policy)
            receipt = await MessageBus(manager).publish(message)
            session = await manager.open(receipt.session_id)
            answer = await until_event(session, AgentMessageEvent)
            assert abs(answer.timestamp.timestamp() - time.time()) < FIVE_MINUTES_S / 2
            assert await of_type(session, MessageSettledEvent) == []
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.join, 60)
        worker.kill()
