"""A worker that was frozen beyond its lease: another one finishes its turn, and it does nothing more (C3, C14)."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.testing.scripted_model import ScriptedModelClient
from kipu.testing.validators import validate
from kipu.wiring import open_manager
from tests.acceptance.runtime import soak_frozen_worker as frozen
from tests.acceptance.runtime.fakes import of_type, runtime
from tests.acceptance.runtime.fakes import until as until_event
from tests.acceptance.runtime.soak_worker import Book
from tests.servers import fresh_schema, postgres_url

STORES = {"sqlite": "sqlite:///{}/s.db", "jsonl": "jsonl:///{}/sessions", "postgresql": ""}


async def told(condition: Callable[[], object]) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", STORES)
async def test_worker_frozen_beyond_its_lease_appends_and_runs_nothing_more(tmp_path: Path, kind: str) -> None:
    """Thawed, a worker whose turn another one has finished is refused its append and begins no other tool (C3, C14)."""
    url = STORES[kind].format(tmp_path) or fresh_schema(postgres_url())
    book = Book(tmp_path / "book")
    async with await open_manager(url, lease_ttl_s=frozen.LEASE_TTL_S) as manager:
        session = await manager.get_or_create("test:1")
        context = multiprocessing.get_context("forkserver")
        worker = context.Process(target=frozen.main, args=(url, str(tmp_path)), daemon=True)
        worker.start()
        try:
            await told(lambda: book.has_begun(worker.pid))
            model = ScriptedModelClient(frozen.answer)
            tools = frozen.frozen_tools(tmp_path, who="second worker")
            await session.add_event(UserMessageEvent(content="go", queued=True))
            await told(lambda: ["ran", "first", "frozen"] in book.lines())
            os.kill(worker.pid or 0, signal.SIGSTOP)
            async with runtime(model, *tools, manager=manager, sweep_s=0.1) as run:
                await until_event(session, TurnFinishedEvent)
                await run.settled()
            written = await session.get_full_history()
            (tmp_path / frozen.RUN_ON).touch()
            os.kill(worker.pid or 0, signal.SIGCONT)
            await told(lambda: ["ended", "first", "frozen"] in book.lines())
            worker.terminate()
            await asyncio.to_thread(worker.join, 60)
            assert worker.exitcode == 0
        finally:
            worker.kill()
        assert await session.get_full_history() == written
        results = [(event.tool_name, event.synthetic) for event in await of_type(session, ToolResultEvent)]
        assert results == [("first", "interrupted"), ("second", None), ("third", None)]
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
        ran = [words[1:] for words in book.lines() if words[0] == "ran"]
        assert ran == [["first", "frozen"], ["second", "second worker"], ["third", "second worker"]]
        window = await session.get_context_for_llm("neutral")
        assert validate("neutral", {"messages": window}, may_end_with_model=True) == []
