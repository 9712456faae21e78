"""Consolidation in real processes: killed at each step, and two at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kipu.events.boundary import ConsolidationEvent
from kipu.memory.consolidation import ConsolidationPolicy
from kipu.ports.memory import FactQuery
from kipu.ports.principal import Principal
from tests.acceptance.memory.conftest import Opened, say

SCRIPT = Path(__file__).with_name("consolidating.py")
FACTS = ["I prefer tabs over spaces.", "The port is 8080.", "We use Rust 1.80."]
STEPS = ("captured", "extracted", "leased", "announced", "appended", "followed")


def start(url: str, session_id: str, step: str = "") -> subprocess.Popen[str]:
    """Start a process that takes the session in."""
    words = [sys.executable, str(SCRIPT), url, session_id, step]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def a_session(opened: Opened) -> str:
    """Make a session that teaches `FACTS`, and return its id."""
    manager, memory = await opened()
    session = await manager.get_or_create("cli:p")
    await say(session, *FACTS, "ok")
    await memory.store.close()
    await manager.close()
    return session.session_id


async def consolidations(opened: Opened, session_id: str) -> tuple[list[ConsolidationEvent], list[str]]:
    """Return what the log and memory say, as a process that has just started sees it."""
    manager, memory = await opened(policy=ConsolidationPolicy(keep_exchanges=1))
    session = await manager.open(session_id)
    found = await memory.facts(FactQuery(statuses=None, limit=500), principal=Principal.local())
    events = [event for event in await session.get_full_history() if isinstance(event, ConsolidationEvent)]
    return events, sorted(fact.text for fact in found.items)


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_neither_misses_nor_doubles(opened: Opened, store_url: str, step: str) -> None:
    """After SIGKILL at each step memory has what the log says it has, at once, and the next run completes it once (A60, A68)."""
    session_id = await a_session(opened)
    with start(store_url, session_id, step) as process:
        process.communicate(timeout=60)
    assert process.returncode == -9
    events, texts = await consolidations(opened, session_id)
    is_appended = step in ("appended", "followed")
    assert len(events) == is_appended
    assert texts == (FACTS if is_appended else [])
    manager, memory = await opened(policy=ConsolidationPolicy(keep_exchanges=1))
    done = await memory.worker.consolidate(session_id)
    assert (done is None) == is_appended
    events, texts = await consolidations(opened, session_id)
    assert (len(events), texts) == (1, FACTS)
    assert (await manager.open(session_id)).last_consolidated == events[0].to_seq


async def test_two_processes_take_a_session_in_once(opened: Opened, store_url: str) -> None:
    """Of processes that consolidate the same session at the same time one does, and the others say that nothing is left (A58, A68)."""
    session_id = await a_session(opened)
    processes = [start(store_url, session_id) for _ in range(3)]
    said = sorted(process.communicate(timeout=120)[0].strip() for process in processes)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert said == ["1-7", "nothing", "nothing"]
    events, texts = await consolidations(opened, session_id)
    assert (len(events), texts) == (1, FACTS)
