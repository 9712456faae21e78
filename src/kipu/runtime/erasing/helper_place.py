"""Helpers of an erased session's turn: nobody waits for their answers any more, nor for what they ask a person."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.errors import AccessDeniedError, SessionNotFoundError
from kipu.manager.access import owner_of
from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.store import EventStore, SessionQuery
from kipu.runtime.turns.ancestry import CHANNEL, bond_of, end_task

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager


class HelperPlace:
    """End what helpers do for a turn that goes. Their sessions stay: they are listed, and erased like any other."""

    name = "helpers"

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return where to look; only an open turn has anybody working for it."""
        del store
        return None if head.open_turn is None else {"tenant": head.tenant}

    async def settle_fork(self, head: Head) -> None:
        """Leave forks alone: no helper works for them."""

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Tell whoever works for the session to end; what a helper asks of a person is taken back with its turn."""
        query = SessionQuery(tenant=facts.get("tenant"), key_prefix=CHANNEL, open_turn=True, limit=500)
        while True:
            page = await self._manager.store.list(query)
            for head in page.items:
                await self._end(head, session_id)
            if page.cursor is None:
                return Emptied()
            query = replace(query, cursor=page.cursor)

    async def _end(self, head: Head, session_id: str) -> None:
        bond, owner = bond_of(head.metadata), owner_of(head)
        if bond is None or bond.session_id != session_id or bond.call_id is None:
            return
        with suppress(SessionNotFoundError, AccessDeniedError):  # erased with it, or meanwhile
            helper = await self._manager.open(head.session_id, principal=owner)
            await end_task(helper, bond.call_id, principal=owner)

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Do nothing more: a person's helpers are sessions of theirs, and go with them."""
        del tenant, owner
        return Emptied()

    def roots(self) -> Sequence[Path]:
        """Return none: they are in the store."""
        return ()
