"""Whether there is a session under an id: a kill may have left only the place for one, without any event (JL-15)."""

from __future__ import annotations

from kipu.ports.head import Head
from kipu.ports.store import EventStore


def has_begun(head: Head) -> bool:
    """Return False for a place without any event that can be read: it is nobody's, and may be begun."""
    return head.last_seq > 0 or head.status == "unreadable"


async def begun(store: EventStore, session_id: str) -> Head | None:
    """Return the head of a session that has begun, None where there is none."""
    head = await store.head(session_id)
    return head if head is not None and has_begun(head) else None
