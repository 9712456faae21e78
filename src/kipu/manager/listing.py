"""Listing what a principal may see, from heads alone: no session is opened, no event is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from kipu.events.normalise import normalise
from kipu.manager.access import Verb, may
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore, Page, SessionQuery

NOBODY = ""  # the owner of a head whose first record is damaged
OWN_CHANNEL = "kipu:"  # sessions that Kipu keeps for itself; listed only when a query names their key
LISTED_STATUSES = frozenset({"active", "expired", "archived", "unreadable"})


async def list_heads(store: EventStore, query: SessionQuery, *, principal: Principal) -> Page[Head]:
    """Return a page of what the principal owns or shares; trash is only listed when asked for (A20, C19).

    The store finds, the table decides: a role that may not read, or that this version does not know, lists nothing.
    """
    query = _as_kept(query)
    visible_to = None if principal.is_admin else principal.id
    statuses = query.statuses or LISTED_STATUSES
    page = await store.list(replace(query, tenant=principal.tenant, visible_to=visible_to, statuses=statuses))
    keeps_own = (query.key or query.key_prefix or "").startswith(OWN_CHANNEL)
    shown = [head for head in page.items if may(principal, Verb.READ, head=head) and (keeps_own or not _is_own(head))]
    return replace(page, items=tuple(shown))


def _as_kept(query: SessionQuery) -> SessionQuery:
    """Return the query with its values as heads keep them: what was entered is found, and no store is asked for what none has."""
    kept, _ = normalise(
        {
            "owner": query.owner,
            "key": query.key,
            "key_prefix": query.key_prefix,
            "forked_from": query.forked_from,
            "metadata": dict(query.metadata),
        }
    )
    tags = frozenset(normalise(tag)[0] for tag in query.tags)
    return replace(query, **kept, tags=tags)


def _is_own(head: Head) -> bool:
    return (head.key or "").startswith(OWN_CHANNEL)


async def all_heads(store: EventStore, query: SessionQuery, *, principal: Principal) -> AsyncIterator[Head]:
    """Yield every head that matches, page by page; for whoever works on this machine alone, last those that lost their owner."""
    async for head in _pages(store, query, principal=principal):
        yield head
    if principal.is_local and not principal.is_admin and query.owner is None:
        # Without an owner they are nobody's, and visible to no id: they are listed as to an administrator.
        looker = replace(principal, roles=frozenset({"admin"}))
        async for head in _pages(store, replace(query, owner=NOBODY), principal=looker):
            yield head


async def _pages(store: EventStore, query: SessionQuery, *, principal: Principal) -> AsyncIterator[Head]:
    while True:
        page = await list_heads(store, query, principal=principal)
        for head in page.items:
            yield head
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
