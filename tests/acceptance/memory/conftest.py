"""A store of each kind with its memory beside it, closed and opened again as by another process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.memory import Memory
from kipu.wiring import open_manager, open_memory
from tests.servers import fresh_schema, postgres_url

Opened = Callable[..., Awaitable[tuple[SessionManager, Memory]]]


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store that survives closing."""
    if request.param == "postgresql":
        return fresh_schema(postgres_url())
    return {"sqlite": f"sqlite:///{tmp_path}/sessions.db", "jsonl": f"jsonl:///{tmp_path}/sessions"}[request.param]


@pytest.fixture
async def opened(store_url: str) -> AsyncIterator[Opened]:
    """Return a function that opens a manager and its memory; all are closed at the end."""
    made: list[tuple[SessionManager, Memory]] = []

    async def open_both(*, manager: dict[str, Any] | None = None, **options: Any) -> tuple[SessionManager, Memory]:
        one = await open_manager(store_url, **(manager or {}))
        memory = open_memory(one, store_url, **options)
        made.append((one, memory))
        return one, memory

    yield open_both
    for one, memory in made:
        await memory.store.close()
        await one.close()


async def say(session: Session, *texts: str) -> None:
    """Add exchanges: a question and its answer each."""
    for text in texts:
        await session.add_event(UserMessageEvent(content=text))
        await session.add_event(AgentMessageEvent(content=f"Noted: {len(text)} characters."))


async def texts(memory: Memory, **conditions: Any) -> list[str]:
    """Return the active facts of the local user, sorted."""
    from kipu.ports.memory import FactQuery
    from kipu.ports.principal import Principal

    page = await memory.facts(FactQuery(**conditions), principal=Principal.local())
    return sorted(fact.text for fact in page.items)
