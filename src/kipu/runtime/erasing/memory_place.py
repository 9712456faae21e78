"""Memory: facts whose only source an erased session is, and all facts of an erased person."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.memory import MemoryErasure, MemoryStore
from kipu.ports.store import EventStore

OpenMemory = Callable[[], MemoryStore | None]


class MemoryPlace:
    """Ask memory to forget; it is opened only for that, and not at all where there is none."""

    name = "memory"

    def __init__(self, opens: OpenMemory, *, roots: Sequence[Path] = ()) -> None:
        self._opens = opens
        self._roots = tuple(roots)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[MemoryErasure | None]:
        memory = self._opens()
        try:
            yield memory
        finally:
            if memory is not None:
                await memory.close()

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return that memory has to be asked: what it knows of a session, it knows by the session's id."""
        return {}

    async def settle_fork(self, head: Head) -> None:
        """Leave forks alone: facts name the session that they were learned in."""

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Forget the session."""
        async with self._opened() as memory:
            return Emptied() if memory is None else Emptied({"facts": await memory.forget_session(session_id)})

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Forget the person."""
        async with self._opened() as memory:
            return Emptied() if memory is None else Emptied({"facts": await memory.forget_person(tenant, owner)})

    def roots(self) -> Sequence[Path]:
        """Return memory's files."""
        return self._roots
