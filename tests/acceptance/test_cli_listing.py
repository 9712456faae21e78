"""`kipu ls` stays quick with many sessions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kipu.wiring import open_manager
from tests.unit.cli.command_line import CommandLine

SESSIONS = 10_000
LIMIT_S = 0.5


async def fill(store: str) -> None:
    async with await open_manager(store, max_sessions=1) as manager:
        for start in range(0, SESSIONS, 100):
            numbers = range(start, start + 100)
            await asyncio.gather(*(manager.create_session(title=f"session {number}") for number in numbers))


@pytest.mark.long
def test_ls_lists_ten_thousand_sessions_in_half_a_second(tmp_path: Path) -> None:
    """A fresh process lists 10 000 sessions, all of them or the first page, within 0.5 s (B50)."""
    kipu = CommandLine(tmp_path, f"sqlite:///{tmp_path / 'sessions.db'}")
    asyncio.run(fill(kipu.store))
    for words in (("ls",), ("ls", "--json"), ("ls", "-n", "50")):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            ran = kipu.process(*words)
            times.append(time.perf_counter() - began)
            assert ran.code == 0
        assert min(times) < LIMIT_S, (words, times)
    assert len(kipu.process("ls", "--json").json) == SESSIONS
