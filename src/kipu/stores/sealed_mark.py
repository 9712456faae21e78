"""What tells of a store, to whoever has no key, that its events are sealed or chained."""

from __future__ import annotations

from kipu.errors import StoreError
from kipu.ports.head import Head
from kipu.ports.store import EventStore, SessionQuery
from kipu.stores.chain_link import CHAIN

_SEALED = b'"$sealed":"~'


async def is_sealed(store: EventStore) -> bool:
    """Return whether the newest session's first event is sealed; a store that cannot be read says so elsewhere."""
    try:
        head = await newest(store)
        if head is None:
            return False
        first = await store.read(head.session_id, after=head.base_seq, limit=1)
    except StoreError:
        return False
    return any(_SEALED in event.record.body for event in first) or CHAIN in head.metadata


async def is_chained(store: EventStore) -> bool:
    """Return whether the newest session is chained; `store` is the one without wrappers."""
    head = await newest(store)
    return head is not None and CHAIN in head.metadata


async def newest(store: EventStore) -> Head | None:
    """Return the head of the newest session, None where the store holds none."""
    page = await store.list(SessionQuery(limit=1))
    return page.items[0] if page.items else None
