"""Facts to keep and memories to keep them in: in a file, in this process, in a database, and each of them under seal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kipu.memory.fact_text import entry_of
from kipu.memory.opening import open_memory_store
from kipu.ports.memory import Fact, FactEntry, MemoryStore, Source, Space
from kipu.wiring import memory_store_of, open_store
from tests.servers import fresh_schema, postgres_url
from tests.unit.stores.encrypted.kit import keys, opened

ME = Space("", "local", "project", "folder:/a")
KINDS_OF_MEMORY = ("file", "process", "database", "sealed file", "sealed process", "sealed database")
Reopen = Callable[[], Awaitable[MemoryStore]]


def a_fact(
    fact_id: str,
    text: str,
    *,
    space: Space = ME,
    sources: tuple[tuple[str, int], ...] = (("sess_a", 5),),
    **more: object,
) -> Fact:
    """Return a fact as something learned would be."""
    values = {
        "kind": "project_fact",
        "confidence": 0.6,
        "created_at": f"2026-01-01T00:00:00.{len(fact_id):06d}Z",
        **more,
    }
    return Fact(fact_id=fact_id, space=space, text=text, sources=tuple(Source(*each) for each in sources), **values)  # type: ignore[arg-type]


def entry(fact_id: str, text: str, *, replaces: tuple[str, ...] = (), **more: object) -> FactEntry:
    """Return an entry as consolidation makes one."""
    return entry_of(a_fact(fact_id, text, **more), replaces=replaces)  # type: ignore[arg-type]


async def opened_memory(stack: AsyncExitStack, kind: str, folder: Path) -> MemoryStore:
    """Open an empty memory of a kind; it and what it stands on are closed with `stack`."""
    is_sealed, place = kind.startswith("sealed"), kind.rsplit(maxsplit=1)[-1]
    if place == "database":
        url = fresh_schema(postgres_url())
        store = await open_store(url, keys=keys() if is_sealed else None)
        stack.push_async_callback(store.close)
        memory = memory_store_of(url, store)
    else:
        path = folder / "m.memory" if place == "file" else None
        sealing = None
        if is_sealed:
            keyed = await opened("memory://")
            stack.push_async_callback(keyed.close)
            sealing = keyed.store_keys
        memory = open_memory_store(path, keys=sealing)
    stack.push_async_callback(memory.close)
    return memory


@pytest.fixture(params=KINDS_OF_MEMORY)
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryStore]:
    """Return an empty memory of each kind."""
    async with AsyncExitStack() as stack:
        yield await opened_memory(stack, request.param, tmp_path)
