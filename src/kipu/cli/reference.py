"""From what a person writes to the session that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kipu.errors import InvalidSessionKeyError, SessionAmbiguousError, SessionNotFoundError
from kipu.manager.access import Verb, may
from kipu.ports.store import SessionQuery

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.ports.head import Head

SHORTEST_PART = 4
BUSY_WAIT_S = 5.0  # who has a session for longer is told: a command that waits in silence looks as if it hung
NAMED_CANDIDATES = 5
EVERY_STATUS = frozenset({"active", "expired", "archived", "trashed"})


async def find_session(manager: SessionManager, text: str, *, verb: Verb = Verb.READ) -> Session:
    """Return the session of this id, this key, or the one whose id begins or ends so, for what is to be done with it.

    Raises:
        SessionNotFoundError: there is none for this principal. SessionAmbiguousError: there are several.
        AccessDeniedError: it is shared with them in a role that may not.
    """
    exact = await find_exactly(manager, text, verb=verb)
    return exact if exact is not None else await manager.open(await _by_part(manager, text), verb=verb)


async def find_head(manager: SessionManager, text: str, *, verb: Verb = Verb.READ) -> str:
    """Return the id of the session meant, as `find_session` does, without reading more of it than its head."""
    if ":" in text:
        return (await find_session(manager, text, verb=verb)).session_id
    if may_be_id(text):
        head = await manager.store.head(text)
        if head is not None and may(manager.principal, Verb.READ, head=head):
            await manager.denials.require(manager.principal, verb, head=head, session_id=text)
            return text
        await manager.denials.note(manager.principal, verb, head=head, session_id=text)
    return await _by_part(manager, text)


async def _by_part(manager: SessionManager, text: str) -> str:
    if len(text) < SHORTEST_PART:
        raise SessionNotFoundError(session_id=text)
    found = [
        head
        async for head in manager.heads(SessionQuery(limit=500, statuses=EVERY_STATUS))
        if head.session_id.startswith(text) or head.session_id.endswith(text)
    ]
    return only_one(found, text).session_id


async def find_exactly(manager: SessionManager, text: str, *, verb: Verb = Verb.READ) -> Session | None:
    """Return the session of exactly this id or key."""
    if ":" in text:
        try:
            bound = await manager.resolve(text)
        except InvalidSessionKeyError:
            return None
        return await manager.open(bound, verb=verb) if bound is not None else None
    if not may_be_id(text):
        return None
    try:
        return await manager.open(text, verb=verb)
    except SessionNotFoundError:
        return None


def only_one(found: list[Head], text: str) -> Head:
    """Return the one head found. Raises: SessionNotFoundError, SessionAmbiguousError."""
    if not found:
        raise SessionNotFoundError(session_id=text)
    if len(found) > 1:
        named = [f"{head.session_id} ({head.display_title})" for head in found[:NAMED_CANDIDATES]]
        more = [f"and {len(found) - NAMED_CANDIDATES} more"] if len(found) > NAMED_CANDIDATES else []
        raise SessionAmbiguousError(text=text, candidates=", ".join([*named, *more]))
    return found[0]


def may_be_id(text: str) -> bool:
    """Return whether this can be a whole id: what no session has is asked of no store."""
    from kipu.errors import InvalidSessionIdError
    from kipu.events.ids import check_session_id

    try:
        check_session_id(text)
    except InvalidSessionIdError:
        return False
    return True
