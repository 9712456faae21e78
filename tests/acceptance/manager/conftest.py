"""One place for sessions per test, over every store, which can be closed and opened again as by another process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.manager.manager import SessionManager
from kipu.wiring import open_manager

Opener = Callable[..., Awaitable[SessionManager]]


@pytest.fixture(params=["sqlite", "jsonl"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store that survives closing."""
    return {"sqlite": f"sqlite:///{tmp_path}/sessions.db", "jsonl": f"jsonl:///{tmp_path}/sessions"}[request.param]


@pytest.fixture
async def opener(store_url: str) -> AsyncIterator[Opener]:
    """Return a function that opens a manager over the test's store; all are closed at the end."""
    opened: list[SessionManager] = []

    async def open_one(**settings: Any) -> SessionManager:
        manager = await open_manager(store_url, **settings)
        opened.append(manager)
        return manager

    yield open_one
    for manager in opened:
        await manager.close()


@pytest.fixture
async def manager(opener: Opener) -> SessionManager:
    """Return a manager over the test's store."""
    return await opener()
