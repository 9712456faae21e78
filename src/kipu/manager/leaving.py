"""The session that a key leads away from: who may take the key from it, and what becomes of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kipu.errors import KipuError, SessionNotFoundError, StoreError
from kipu.events.boundary import StatusChangedEvent
from kipu.manager.access import Verb
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session

logger = logging.getLogger(__name__)


async def session_to_leave(
    manager: SessionManager, session_id: str, *, key: str, principal: Principal
) -> Session | None:
    """Return the session that `key` leads to, where the principal may take the key from it; None where it cannot be read.

    Somebody else's key is not taken over, nor one of a session that they only share. Of one that is lost nobody can say whose
    it is: only the one user of this machine, who has its files anyway, is not stopped by that.
    Raises: SessionNotFoundError, AccessDeniedError, StoreError.
    """
    try:
        return await manager.open(session_id, principal=principal, verb=Verb.CONFIGURE)
    except (StoreError, SessionNotFoundError) as error:
        if not principal.is_local or await _is_anothers(manager.store, session_id, error):
            raise
        why = "it, or what it was forked from, is gone" if isinstance(error, SessionNotFoundError) else error
        logger.warning("%s led to session %s, which cannot be read and is left as it is: %s", key, session_id, why)
        return None


async def _is_anothers(store: EventStore, session_id: str, error: KipuError) -> bool:
    """Return True where the session is there and was refused; else it is gone, or what it was forked from is."""
    return (
        isinstance(error, SessionNotFoundError)
        and error.data["session_id"] == session_id
        and await store.head(session_id) is not None
    )


async def expire(session: Session, *, principal: Principal) -> None:
    """Mark the session that `/new` left. It is repairable, so a busy one is left to whoever has it, here or elsewhere.

    So is one that cannot be marked: the key leads to another by now.
    """
    try:
        if await session.lock.try_acquire():
            try:
                await _expire(session, principal)
            finally:
                await session.lock.release()
    except KipuError as error:
        logger.warning("session %s was not marked as expired: %s", session.session_id, error)


async def _expire(session: Session, principal: Principal) -> None:
    await session.refresh()
    head = session.head
    if head.status == "active" and not head.waiting and head.open_turn is None:
        status = StatusChangedEvent(status="expired", reason="new session under the key")
        await session.add_event(status, principal=principal)
