"""The sessions of a session's helpers: their questions are questions of the run that began them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from kipu.runtime.turns.ancestry import MAX_DEPTH, bond_of

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager


async def is_helper_of(manager: SessionManager, helper_id: str, *, session_id: str) -> bool:
    """Return True where `helper_id` was begun by a call of the session, or of one of its helpers."""
    return session_id in await _above(manager, helper_id)


async def begun_by(manager: SessionManager, session_id: str) -> str:
    """Return the session that a person works in: the one above all helpers, itself where it is none."""
    return [session_id, *await _above(manager, session_id)][-1]


async def _above(manager: SessionManager, session_id: str) -> list[str]:
    """Return the sessions that a helper's session was begun by, the nearest first."""
    found: list[str] = []
    while len(found) < MAX_DEPTH:
        head = await manager.store.head(session_id)
        bond = bond_of(head.metadata) if head is not None else None
        if bond is None:
            break
        session_id = bond.session_id
        found.append(session_id)
    return found


async def parked_helpers(manager: SessionManager, *, session_id: str) -> AsyncIterator[str]:
    """Yield the helpers of a session whose turn begins to wait for a person, from now on."""
    async for stored in manager.store.follow(types={"turn_parked"}):
        if stored.session_id != session_id and await is_helper_of(manager, stored.session_id, session_id=session_id):
            yield stored.session_id
