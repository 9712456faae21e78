"""Whether there is a session under an id: a kill may have left only the place for one, without any event (JL-15)."""

from __future__ import annotations

from kipu.ports.head import Head
from kipu.ports.store import EventStore


async def has_begun(store: EventStore, head: Head) -> bool:
    """Return False for a place without any event: it is nobody's, and may be begun. Where all is damaged, there were some."""
    return head.last_seq > 0 or head.status == "unreadable" or bool(await store.verify(head.session_id))


async def begun(store: EventStore, session_id: str) -> Head | None:
    """Return the head of a session that has begun, None where there is none."""
    head = await store.head(session_id)
    return head if head is not None and await has_begun(store, head) else None
