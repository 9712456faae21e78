"""`Elsewhere`: sessions whose files are on another machine: left to its worker, and given an answer where it has none (B61)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kipu.errors import WorkspaceError
from kipu.ports.head import Head
from kipu.runtime.workspaces.place import Place, Placing
from kipu.runtime.workspaces.presence import Presence

logger = logging.getLogger(__name__)

WAIT_S = 60.0
ASKED_WAIT_S = 5.0  # of a command that serves one session: somebody sits before it
OPEN_TURN_TIMES = 10  # a turn that was begun waits longer for its machine to come back than a message that was not
_FORGOTTEN_S = 600.0


class Elsewhere:
    """Say which sessions with work a worker here leaves alone.

    One that is bound to a place with a worker is that worker's. Where none has been there for `wait_s`, the next worker takes
    the turn all the same: it fails with HostBoundError, which names the machine, and so whoever asked has an answer.
    """

    def __init__(
        self, placing: Placing, presence: Presence, *, monotonic_s: Callable[[], float], wait_s: float = WAIT_S
    ) -> None:
        self._placing = placing
        self._presence = presence
        self._monotonic_s = monotonic_s
        self._wait_s = wait_s
        self._since: dict[
            str, tuple[Place, float, float]
        ] = {}  # the place, since when it is alone, when it was last looked at
        self.tell: Callable[[str, Place], None] = lambda _session_id, _place: None

    @property
    def waiting(self) -> dict[str, Place]:
        """Return the sessions that had work a moment ago and wait for another place."""
        oldest_s = self._monotonic_s() - _FORGOTTEN_S
        self._since = {name: entry for name, entry in self._since.items() if entry[2] > oldest_s}
        return {session_id: place for session_id, (place, _, _) in self._since.items()}

    async def holds(self, head: Head) -> bool:
        """Return True where the session is to be left to whoever works where its files are."""
        session_id, record = head.session_id, head.workspace or {}
        try:
            place = await asyncio.to_thread(self._placing.elsewhere, record) if "place" in record else None
        except WorkspaceError as error:  # the shared directory is not there now: nothing is taken until it is
            logger.warning("session %s is left alone: %s", session_id, error)
            return True
        if place is None:
            self._since.pop(session_id, None)
            return False
        now_s = self._monotonic_s()
        _, alone_since_s, _ = self._since.get(session_id, (place, now_s, now_s))
        if session_id not in self._since:
            self.tell(session_id, place)
        if await self._presence.is_worked_at(place):
            alone_since_s = now_s
        self._since[session_id] = (place, alone_since_s, now_s)
        waits_s = self._wait_s * (OPEN_TURN_TIMES if head.open_turn is not None else 1)
        if now_s - alone_since_s < waits_s:
            return True
        logger.info("session %s is bound to %s, where nobody works: its turn fails", session_id, place.name)
        return False
