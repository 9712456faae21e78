"""A manager over every store, an encrypted one among them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kipu.manager.manager import SessionManager
from kipu.security.key_file import key_line
from kipu.wiring import open_manager


@pytest.fixture(params=["memory", "sqlite", "jsonl", "encrypted"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty store."""
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/s.db",
        "jsonl": f"jsonl:///{tmp_path}/s",
        "encrypted": f"sqlite:///{tmp_path}/sealed.db?encrypt=env:KIPU_TEST_KEY",
    }[request.param]


@pytest.fixture
async def manager(store_url: str) -> AsyncIterator[SessionManager]:
    """Return a manager over the test's store."""
    async with await open_manager(store_url) as opened:
        yield opened
