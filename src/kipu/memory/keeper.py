"""Memory by itself: sessions that are idle, over, or long are taken in beside everything else, a few at a time (§8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from kipu.errors import KipuError, StoreClosedError
from kipu.events.event import utc_text
from kipu.manager.manager import SessionManager
from kipu.memory.memory import Memory
from kipu.memory.place import is_helper
from kipu.ports.head import Head
from kipu.ports.store import SessionQuery

logger = logging.getLogger(__name__)
_LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class KeeperPolicy:
    """When a session is taken in: idle for `idle_s`, or with `enough_tokens` behind the boundary; one that is over, whole.

    With `at_end` False, sessions that `/new` or expiry ended are treated as idle ones. What was last active before
    `lookback_days` is left as it is. `most` bounds how many sessions one look takes in.
    """

    idle_s: float = 600.0
    enough_tokens: int = 30_000
    at_end: bool = True
    sweep_s: float = 60.0
    first_s: float = 5.0
    lookback_days: float = 30.0
    most: int = 4


class MemoryKeeper:
    """Look at the principal's sessions now and then, and take in what is ready. Use it as `async with`.

    A failure is told and tried again when the session has moved on; nothing else waits for it.
    """

    def __init__(self, manager: SessionManager, memory: Memory, *, policy: KeeperPolicy | None = None) -> None:
        self._manager = manager
        self._memory = memory
        self.policy = policy or KeeperPolicy()
        self._looked_at: dict[str, tuple[int, bool]] = {}  # what gave nothing, until it has moved on
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._look_often())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look_often(self) -> None:
        await asyncio.sleep(self.policy.first_s)
        while True:
            try:
                await self.look()
            except StoreClosedError:
                return
            except KipuError as error:
                logger.warning("memory could not look at the sessions: %s", error)
            await asyncio.sleep(self.policy.sweep_s)

    async def look(self) -> int:
        """Take in what is ready now, and return in how many sessions that was."""
        await self._memory.follower.complete()
        taken = 0
        async for head in self._recent():
            keep = self._ready(head)
            if keep is None:
                continue
            if len(self._looked_at) >= _LOOKED_AT:
                self._looked_at.clear()
            self._looked_at[head.session_id] = (head.last_seq, keep == 0)
            try:
                found = await self._memory.worker.consolidate(head.session_id, keep_exchanges=keep)
            except KipuError as error:
                logger.warning("session %s was not taken into memory: %s", head.session_id, error)
                continue
            taken += found is not None
            if taken >= self.policy.most:
                break
        return taken

    async def _recent(self) -> AsyncIterator[Head]:
        since = utc_text(self._now() - timedelta(days=self.policy.lookback_days))
        query = SessionQuery(statuses=frozenset({"active", "expired"}), active_after=since, limit=200)
        async for head in self._manager.heads(query):
            yield head

    def _ready(self, head: Head) -> int | None:
        """Return how many exchanges stay out where the session is ready, None where it is not."""
        after = max(head.consolidated_seq, head.base_seq)
        if head.last_seq <= after or head.open_turn is not None or is_helper(head):
            return None
        is_over = self.policy.at_end and head.status == "expired"
        keep = 0 if is_over else self._memory.worker.policy.keep_exchanges
        if self._looked_at.get(head.session_id) == (head.last_seq, keep == 0):
            return None
        share = (head.last_seq - after) / max(head.last_seq - head.base_seq, 1)
        is_long = head.token_count * share >= self.policy.enough_tokens
        return keep if is_over or is_long or self._idle_s(head) >= self.policy.idle_s else None

    def _idle_s(self, head: Head) -> float:
        """Return how long nothing was said; a clock that was set back makes nobody idle."""
        if not head.last_activity_at:
            return 0.0
        return (self._now() - datetime.fromisoformat(head.last_activity_at)).total_seconds()

    def _now(self) -> datetime:
        return datetime.fromisoformat(self._memory.now())
