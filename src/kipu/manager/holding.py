"""Legal hold: a session that must not go, whatever retention, a person or its owner says, until it is released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kipu.errors import InputError, SessionHeldError
from kipu.events.boundary import MetadataChangedEvent
from kipu.manager.access import Verb
from kipu.ports.head import Head
from kipu.ports.principal import Principal

if TYPE_CHECKING:
    from kipu.manager.session import Session

HOLD = "kipu.hold"  # the setting by which a head says that it is held; only Kipu sets such names
_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Hold:
    """Who held a session, when, and why."""

    by: str
    at: str
    reason: str


def hold_of(head: Head) -> Hold | None:
    """Return the hold on a session. One that cannot be understood holds all the same."""
    found: Any = head.metadata.get(HOLD)
    if found is None:
        return None
    values = found if isinstance(found, Mapping) else {}
    return Hold(str(values.get("by", "")), str(values.get("at", "")), str(values.get("reason", "")))


def require_not_held(head: Head) -> None:
    """Return where nothing holds the session. Raises: SessionHeldError."""
    hold = hold_of(head)
    if hold is not None:
        raise SessionHeldError(session_id=head.session_id, by=hold.by, at=hold.at, reason=hold.reason)


async def hold_session(session: Session, *, reason: str, at: str, principal: Principal) -> Hold:
    """Hold a session, durably, on record. One that is held already stays as it is held. Only its owner or an administrator may."""
    caller = await session.permit(Verb.HOLD, principal)
    if not reason.strip() or len(reason) > _REASON_CHARACTERS:
        raise InputError(reason=f"a hold says why, in at most {_REASON_CHARACTERS} characters")
    await session.refresh()
    known = hold_of(session.head)
    if known is not None:
        return known
    hold = Hold(caller.id, at, reason)
    change = MetadataChangedEvent(set={HOLD: {"by": hold.by, "at": hold.at, "reason": hold.reason}})
    await session.append([change], principal=caller, verb=Verb.HOLD)
    return hold


async def release_session(session: Session, *, principal: Principal) -> bool:
    """Take the hold back, on record; False where there was none."""
    caller = await session.permit(Verb.HOLD, principal)
    await session.refresh()
    if hold_of(session.head) is None:
        return False
    await session.append([MetadataChangedEvent(unset=[HOLD])], principal=caller, verb=Verb.HOLD)
    return True
