"""Listing what a principal may see, from heads alone: no session is opened, no event is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore, Page, SessionQuery

NOBODY = ""  # the owner of a head whose first record is damaged
OWN_CHANNEL = "kipu:"  # sessions that Kipu keeps for itself; listed only when a query names their key
LISTED_STATUSES = frozenset({"active", "expired", "archived"})


async def list_heads(store: EventStore, query: SessionQuery, *, principal: Principal) -> Page[Head]:
    """Return a page of the principal's sessions; trash is only listed when asked for (A20, C19)."""
    owner = query.owner if principal.is_admin else principal.id
    page = await store.list(
        replace(query, tenant=principal.tenant, owner=owner, statuses=query.statuses or LISTED_STATUSES)
    )
    if (query.key or query.key_prefix or "").startswith(OWN_CHANNEL) or not any(map(_is_own, page.items)):
        return page
    return replace(page, items=tuple(head for head in page.items if not _is_own(head)))


def _is_own(head: Head) -> bool:
    return (head.key or "").startswith(OWN_CHANNEL)


async def all_heads(store: EventStore, query: SessionQuery, *, principal: Principal) -> AsyncIterator[Head]:
    """Yield every head that matches, page by page; for whoever works on this machine alone, last those that lost their owner."""
    async for head in _pages(store, query, principal=principal):
        yield head
    if principal.is_local and not principal.is_admin and query.owner is None:
        nobody = replace(principal, id=NOBODY)
        async for head in _pages(store, query, principal=nobody):
            yield head


async def _pages(store: EventStore, query: SessionQuery, *, principal: Principal) -> AsyncIterator[Head]:
    while True:
        page = await list_heads(store, query, principal=principal)
        for head in page.items:
            yield head
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
