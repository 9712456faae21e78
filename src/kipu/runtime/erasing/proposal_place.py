"""Proposals that an agent made in a session: they repeat what it wrote there, and stand in their person's ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.errors import InvalidSessionKeyError
from kipu.events.boundary import NoteEvent, SessionInitEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import owner_of
from kipu.manager.loader import item_of
from kipu.manager.lock import SessionLock
from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import Binding, EventStore, SessionQuery, StoredEvent
from kipu.proposals.ledger import ledger_key
from kipu.proposals.proposal import Proposal
from kipu.proposals.state import LedgerState
from kipu.session.patch import patch_for

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager

APPROVED_KEPT = "approved proposals"


class ProposalPlace:
    """Remove the proposals that rest on an erased session alone; what a person approved is theirs by then, and stays.

    A log is not rewritten: the ledger's other notes get a fresh session under its key, and the old one is erased.
    """

    name = "proposals"

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return whose ledger it is; None where that person has none, or this is it."""
        owner = owner_of(head)
        key = _key(owner.tenant, owner.id)
        if key is None or head.key == key or await store.resolve(key) is None:
            return None
        return {"tenant": owner.tenant, "owner": owner.id}

    async def settle_fork(self, head: Head) -> None:
        """Leave forks alone: their own agents made their own proposals."""

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Remove what was proposed there, and what a kill left of an earlier removal."""
        gone, kept = 0, False
        async for head in self._ledgers(str(facts.get("tenant", "")), str(facts.get("owner", ""))):
            if head.key is None or await self._manager.store.resolve(head.key) != head.session_id:
                await self._erase(head.session_id)  # its notes stand in the one that has its key
                continue
            proposals = (await self._folded(head.session_id)).proposals.values()
            made_there = [proposal for proposal in proposals if _rests_on(proposal, session_id)]
            doomed = {proposal.proposal_id for proposal in made_there if proposal.version is None}
            kept = kept or len(doomed) < len(made_there)
            if doomed:
                await self._replace(head, head.key, doomed=doomed)
            gone += len(doomed)
        return Emptied({"proposals": gone}, kept=(APPROVED_KEPT,) if kept else ())

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Erase the ledgers that erasing the person's sessions one by one put in place of others."""
        gone = 0
        async for head in self._ledgers(tenant, owner):
            await self._erase(head.session_id)
            gone += 1
        return Emptied({"ledgers": gone})

    def roots(self) -> Sequence[Path]:
        """Return none: they are in the store."""
        return ()

    async def _ledgers(self, tenant: str, owner: str) -> AsyncIterator[Head]:
        """Yield the person's ledger, and those that lost its key to a newer one; an imported session is none."""
        key = _key(tenant, owner)
        query = SessionQuery(tenant=tenant, owner=owner, key=key, limit=100)
        while key is not None:
            page = await self._manager.store.list(query)
            for head in page.items:
                if head.origin is None:
                    yield head
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    async def _folded(self, session_id: str) -> LedgerState:
        state = LedgerState()
        async for stored in self._stored(session_id, after=0):
            state.take(item_of(stored).event)
        return state

    async def _stored(self, session_id: str, *, after: int) -> AsyncIterator[StoredEvent]:
        while page := await self._manager.store.read(session_id, after=after):
            for stored in page:
                yield stored
            after = page[-1].seq

    async def _replace(self, head: Head, key: str, *, doomed: set[str]) -> None:
        """Put all but the doomed into a fresh ledger, and the key with them; both in one transaction."""
        manager = self._manager
        fresh = manager.mint("sess")
        init = SessionInitEvent(key=key, owner=head.owner, tenant=head.tenant)
        prepared = await manager.writer.prepare(fresh, init, principal=head.owner)
        notes, last_seq = await self._kept(head.session_id, after=0, doomed=doomed)
        await manager.store.append(
            fresh,
            [prepared.record, *(stored.record for stored, _ in notes)],
            head=patch_for([prepared.event, *(event for _, event in notes)]),
            bind=Binding(key, head.session_id),
        )
        late, _ = await self._kept(head.session_id, after=last_seq, doomed=doomed)
        if late:  # somebody found the old one just before the key moved
            patch = patch_for([event for _, event in late])
            await manager.store.append(fresh, [stored.record for stored, _ in late], head=patch)
        await self._erase(head.session_id)

    async def _kept(
        self, session_id: str, *, after: int, doomed: set[str]
    ) -> tuple[list[tuple[StoredEvent, SessionEvent]], int]:
        found: list[tuple[StoredEvent, SessionEvent]] = []
        async for stored in self._stored(session_id, after=after):
            event, after = item_of(stored).event, stored.seq
            if isinstance(event, NoteEvent) and event.data.get("proposal_id") not in doomed:
                found.append((stored, event))
        return found, after

    async def _erase(self, session_id: str) -> None:
        manager = self._manager
        async with SessionLock(manager.store, session_id, owner=f"{manager.owner}.proposals") as lock:
            if lock.lease is not None:
                await manager.store.erase(session_id, lease=lock.lease)


def _key(tenant: str, owner: str) -> str | None:
    """Return the key of the person's ledger; None for a name that is in no key, long or of control characters: it has none."""
    try:
        return str(ledger_key(Principal(owner, tenant)))
    except InvalidSessionKeyError:
        return None


def _rests_on(proposal: Proposal, session_id: str) -> bool:
    """Say whether a proposal was written in this session, or has no evidence from elsewhere."""
    if proposal.author.kind != "consolidation":
        return proposal.author.session_id == session_id
    return {entry.session_id for entry in proposal.evidence} == {session_id}
