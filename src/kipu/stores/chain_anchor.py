"""Chains' last links kept outside the store: against them a store that was set back whole is found (EN-23)."""

from __future__ import annotations

from kipu.errors import SessionArchivedError
from kipu.ports.store import EventStore
from kipu.stores.chain_link import CHAIN, ChainBreak, link_of, read_link


async def anchor_of(store: EventStore, session_id: str) -> str | None:
    """Return the last link of a session's chain, None where it has none; `store` is the one inside the chained one."""
    head = await store.head(session_id)
    found = head.metadata.get(CHAIN) if head is not None else None
    return found.rpartition(".")[0] if isinstance(found, str) else None


async def set_back(store: EventStore, session_id: str, *, anchor: str) -> ChainBreak | None:
    """Return where a session is not what it was when `anchor` was its last link, and since has only grown; None where it is.

    That the chain holds up to now is for `verify_chain` to say.
    """
    kept = read_link(anchor)
    if kept is None:
        return ChainBreak(session_id, 0, "anchor")
    now = read_link(await anchor_of(store, session_id))
    if now is None:
        return ChainBreak(session_id, kept.number, "gone")
    if now.number < kept.number or now.start != kept.start:
        return ChainBreak(session_id, now.number + 1, "set back")
    try:
        found = await store.read(session_id, after=kept.number - 1, until=kept.number, limit=1)
    except SessionArchivedError:
        return None  # what stands behind it is chained to it
    if not found or link_of(found[0]) != kept:
        return ChainBreak(session_id, kept.number, "set back")
    return None
