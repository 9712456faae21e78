"""A bus over every store, as often as a test opens it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runtime.bus_place import BusPlace, Opener, open_bus


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def bus_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path}/s.db",
        "jsonl": f"jsonl:///{tmp_path}/s",
    }[request.param]


@pytest.fixture
async def open_place(bus_url: str) -> AsyncIterator[Opener]:
    opened: list[BusPlace] = []

    async def open_one(**settings: Any) -> BusPlace:
        opened.append(await open_bus(bus_url, **settings))
        return opened[-1]

    yield open_one
    for place in opened:
        await place.manager.close()
