"""Who runs a session now, and whether somebody goes on with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kipu.events.turn import TurnFinishedEvent, TurnResumedEvent, TurnStartedEvent
from kipu.ports.owner import Owner
from kipu.stores.host import SystemLiveness

if TYPE_CHECKING:
    from kipu.manager.session import Session

LIVE_WAIT_S = 3.0  # for a process that is there
QUIET_WAIT_S = 0.8  # for one that nobody knows of


def live_owner(text: str | None) -> Owner | None:
    """Return who this lease or turn belongs to, None for nobody and for a process that is known to be dead."""
    if text is None or SystemLiveness().is_dead(text):
        return None
    return Owner.parse(text)


async def last_worker(session: Session) -> Owner | None:
    """Return who ran the open turn last, if that process may still be there."""
    worker: str | None = None
    async for event in session.events(after=max(session.head.open_turn_seq - 1, 0)):
        if isinstance(event, TurnStartedEvent | TurnResumedEvent):
            worker = event.worker
    return live_owner(worker)


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
