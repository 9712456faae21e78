"""Closing a store while there is still something to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kipu.ports.store import Appended, Record
from kipu.wiring import open_store

TIME = "2027-01-15T08:00:00.000000Z"


def record(number: int, event_type: str = "user_message") -> Record:
    return Record(f"e{number}", event_type, TIME, b'{"content":"%d"}' % number)


@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "jsonl:///{}/a"])
async def test_closing_commits_what_was_accepted(url: str, tmp_path: Path) -> None:
    """Appends that wait when the store is closed are stored and acknowledged, and none waits for ever (B49, C2)."""
    store = await open_store(url.format(tmp_path))
    await store.append("one", [record(0, "session_init")])
    appends = [asyncio.ensure_future(store.append("one", [record(number)])) for number in range(1, 21)]
    await asyncio.sleep(0)  # they are on their way
    await store.close()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
    again = await open_store(url.format(tmp_path))
    stored = [event.record.event_id for event in await again.read("one")][1:]
    await again.close()
    acknowledged = [f"e{number}" for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, Appended)]
    assert stored == acknowledged
    assert len(acknowledged) == 20
