"""From what a person writes to the approval that is meant, and whether somebody goes on after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kipu.cli.reference import SHORTEST_PART
from kipu.errors import ApprovalNotFoundError
from kipu.events.turn import TurnFinishedEvent, TurnResumedEvent, TurnStartedEvent
from kipu.ports.owner import Owner
from kipu.stores.host import SystemLiveness

if TYPE_CHECKING:
    from kipu.manager.session import Session
    from kipu.runtime.approvals import ApprovalDesk

LIVE_WAIT_S = 3.0  # for a process that is there
QUIET_WAIT_S = 0.8  # for one that nobody knows of


async def find_approval(desk: ApprovalDesk, text: str) -> tuple[str, str | None]:
    """Return the approval of this id, or the one whose id begins or ends so, with its session; unknown ids as they are.

    Raises: ApprovalNotFoundError (several could be meant, or the part is too short).
    """
    pending = await desk.pending()
    if len(text) < SHORTEST_PART:
        raise ApprovalNotFoundError(
            approval_id=text, reason=f"the part of an id has at least {SHORTEST_PART} characters"
        )
    ids = {approval.approval_id: approval.session_id for approval in pending}
    if text in ids:
        return text, ids[text]
    found = [known for known in ids if known.startswith(text) or known.endswith(text)]
    if len(found) > 1:
        raise ApprovalNotFoundError(approval_id=text, reason=f"it could be any of {', '.join(found[:5])}")
    return (found[0], ids[found[0]]) if found else (text, None)


async def last_worker(session: Session) -> Owner | None:
    """Return who ran the open turn last, if that process may still be there."""
    worker: str | None = None
    async for event in session.events(after=max(session.head.open_turn_seq - 1, 0)):
        if isinstance(event, TurnStartedEvent | TurnResumedEvent):
            worker = event.worker
    if worker is None or SystemLiveness().is_dead(worker):
        return None
    return Owner.parse(worker)


async def taken_up(session: Session, *, after: int) -> Owner | None:
    """Return who goes on with the turn after event `after`; None when nobody has, a moment later."""
    wait_s = LIVE_WAIT_S if await last_worker(session) is not None else QUIET_WAIT_S
    try:
        async with asyncio.timeout(wait_s):
            async for event in session.follow(after=after):
                if isinstance(event, TurnResumedEvent):
                    return Owner.parse(event.worker or "")
    except TimeoutError:
        pass
    return None


async def finished(session: Session, turn_id: str, *, after: int, wait_s: float) -> TurnFinishedEvent | None:
    """Return the end of the turn when it comes within `wait_s`."""
    try:
        async with asyncio.timeout(wait_s):
            async for event in session.follow(after=after):
                if isinstance(event, TurnFinishedEvent) and event.turn_id == turn_id:
                    return event
    except TimeoutError:
        pass
    return None
