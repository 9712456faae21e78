"""Facts to keep and memories to keep them in: in a file, in this process, and both under seal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kipu.memory.fact_text import entry_of
from kipu.memory.opening import open_memory_store
from kipu.ports.memory import Fact, FactEntry, MemoryStore, Source, Space
from kipu.stores.encrypted import EncryptedStore
from tests.unit.stores.encrypted.kit import opened

ME = Space("", "local", "project", "folder:/a")
KINDS_OF_MEMORY = ("file", "process", "sealed file", "sealed process")
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


@pytest.fixture(params=KINDS_OF_MEMORY)
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MemoryStore]:
    """Return an empty memory of each kind."""
    keyed: EncryptedStore | None = None
    if request.param.startswith("sealed"):
        keyed = await opened("memory://")
    path = tmp_path / "m.memory" if request.param.endswith("file") else None
    store = open_memory_store(path, keys=None if keyed is None else keyed.store_keys)
    yield store
    await store.close()
    if keyed is not None:
        await keyed.close()
