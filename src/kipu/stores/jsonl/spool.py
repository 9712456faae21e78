"""A JSONL store as the spool of a fallback: what that needs beyond the contract."""

from __future__ import annotations

import asyncio

from kipu.ports.store import Appended
from kipu.stores.jsonl.desk import Desk
from kipu.stores.jsonl.failure import translating
from kipu.stores.jsonl.lease import LeaseState
from kipu.stores.jsonl.shelf import Shelf
from kipu.stores.jsonl.spooling import (
    Batch,
    discard_damaged,
    forget_session,
    lease_state,
    read_batches,
    seed_lease,
    spooled_ids,
)


class Spool:
    """Give whole batches back, take leases over, and forget sessions without a tombstone."""

    def __init__(self, shelf: Shelf, desk: Desk) -> None:
        self._shelf = shelf
        self._desk = desk

    def holds(self, session_id: str) -> bool:
        """Return True when there is a session of this id, at the cost of one question to the system."""
        return self._shelf.folder_exists(session_id)

    async def session_ids(self) -> list[str]:
        """Return the ids of all sessions, oldest first."""
        with translating(self._shelf.settings.url):
            return [*await asyncio.to_thread(spooled_ids, self._shelf)]

    async def batches(self, session_id: str) -> tuple[list[Batch], int]:
        """Return every append of a session as it was made, and the last seq. Raises: SessionNotFoundError."""
        with translating(self._shelf.settings.url):
            return await asyncio.to_thread(read_batches, self._shelf, session_id)

    async def known_outcome(self, idempotency_key: str) -> Appended | None:
        """Return what was appended under a key, or None."""
        now_us = self._shelf.now_us()
        with translating(self._shelf.settings.url):
            return await self._desk.ask(lambda index: index.outcome(idempotency_key, now_us=now_us))

    async def keys_of(self, session_id: str) -> list[str]:
        """Return the keys that lead to a session."""
        with translating(self._shelf.settings.url):
            return await self._desk.run(lambda wait_s: self._desk.keys_of(session_id, wait_s=wait_s))

    async def seed_lease(self, session_id: str, *, owner: str | None, token: int, until: str | None) -> None:
        """Give a session that is about to begin the lease it has in another store."""
        with translating(self._shelf.settings.url):
            await asyncio.to_thread(seed_lease, self._shelf, session_id, owner=owner, token=token, until=until)

    async def lease_state(self, session_id: str) -> LeaseState:
        """Return owner, token and expiry of a session's lease. Raises: SessionNotFoundError."""
        with translating(self._shelf.settings.url):
            return await asyncio.to_thread(lease_state, self._shelf, session_id)

    async def forget(self, session_id: str, *, last_seq: int) -> bool:
        """Remove a session without a tombstone, unless it has grown beyond `last_seq`: then return False."""
        with translating(self._shelf.settings.url):
            return await asyncio.to_thread(forget_session, self._shelf, session_id, last_seq=last_seq)

    async def discard_damaged(self, session_id: str) -> None:
        """Remove what could not be read of a session that was forgotten, and is erased now."""
        with translating(self._shelf.settings.url):
            await asyncio.to_thread(discard_damaged, self._shelf, session_id)
