"""The lifecycle table: which status may follow which, and what moves it (A54)."""

from __future__ import annotations

from types import MappingProxyType

from kipu.errors import TransitionError

ACTIVE, EXPIRED, ARCHIVED, TRASHED = "active", "expired", "archived", "trashed"
STATUSES = (ACTIVE, EXPIRED, ARCHIVED, TRASHED)

# status before → status after → what may cause it. Erasing is not a status: it ends the session.
TRANSITIONS = MappingProxyType(
    {
        ACTIVE: MappingProxyType(
            {EXPIRED: "idle time or a new session under the key", ARCHIVED: "archive", TRASHED: "trash"}
        ),
        EXPIRED: MappingProxyType({ACTIVE: "use", ARCHIVED: "archive", TRASHED: "trash"}),
        ARCHIVED: MappingProxyType({ACTIVE: "use or unarchive", TRASHED: "trash"}),
        TRASHED: MappingProxyType({ACTIVE: "restore"}),
    }
)


def check_transition(session_id: str, before: str, *, after: str) -> bool:
    """Return True when `before` may become `after`, False when it is that already.

    Raises:
        TransitionError: the table has no such step.
    """
    if before == after:
        return False
    if after not in TRANSITIONS.get(before, {}):
        raise TransitionError(session_id=session_id, before=before, after=after)
    return True


def revives(status: str) -> bool:
    """Return True when use (a message, a turn) brings a session of this status back to active; trash waits for a person."""
    return status in (EXPIRED, ARCHIVED)
