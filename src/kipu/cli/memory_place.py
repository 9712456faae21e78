"""The memory beside the store in force, for a command that also needs what is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kipu.cli.invocation import Invocation
    from kipu.manager.manager import SessionManager
    from kipu.ports.memory import MemoryStore


@asynccontextmanager
async def opened_memory(invocation: Invocation, manager: SessionManager) -> AsyncIterator[MemoryStore]:
    """Open the memory of `manager`'s store, and close it."""
    from kipu.wiring import open_memory

    memory = open_memory(manager, invocation.store_url)
    try:
        yield memory.store
    finally:
        await memory.store.close()
