"""`Memory`: what people and agents do with facts; every call says who asks, and others' facts do not exist for them (C19)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace

from kipu.errors import FactNotFoundError, InputError, InvalidQueryError
from kipu.events.event import utc_text_us
from kipu.events.normalise import normalise
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.approved import ApprovedPolicies, narrowed_scope
from kipu.memory.attribution import NOT_OWNER
from kipu.memory.consolidation import ConsolidationPolicy, ConsolidationWorker, ModelFor, Reached
from kipu.memory.fact_text import WIDER, accepted, entry_of, holds
from kipu.memory.log_follower import LogFollower
from kipu.memory.place import MemoryPlace
from kipu.memory.recall import Recall, RecallPolicy
from kipu.memory.rules import slot_of
from kipu.ports.clock import Clock
from kipu.ports.memory import Fact, FactPage, FactQuery, Kind, MemoryStore, Scope, Source, Space
from kipu.ports.memory_policy import MemoryPolicySource
from kipu.ports.principal import Principal
from kipu.session.terms import phrases_of

FORGET_ASKED = "forget_asked"
"""Finding of a fact that an agent wants forgotten: it is recalled no more, and a person decides."""


class Memory:
    """Work with the memory of one store's sessions. The manager and the memory store stay the caller's."""

    def __init__(
        self,
        manager: SessionManager,
        store: MemoryStore,
        *,
        clock: Clock,
        model_for: ModelFor | None = None,
        policy: ConsolidationPolicy | None = None,
        recall_policy: RecallPolicy | None = None,
        policies: MemoryPolicySource | None = None,
        reached: Reached | None = None,
    ) -> None:
        self._manager = manager
        self._approved = ApprovedPolicies(policies)
        self._clock = clock
        self.store = store
        self.follower = LogFollower(manager.store, store, clock=clock)
        self.recall = Recall(store, self.follower, policy=recall_policy)
        self.worker = ConsolidationWorker(
            manager, store, follower=self.follower, model_for=model_for, policy=policy, reached=reached
        )
        self.worker.obey(self._approved)

    def now(self) -> str:
        """Return the time as facts keep it."""
        return utc_text_us(self._clock.now_us())

    # ---- what agents do --------------------------------------------------------------------------------------------

    async def recalled(
        self,
        session: Session,
        text: str,
        *,
        shown: Collection[str] = (),
        limit: int | None = None,
        asker: str | None = None,
    ) -> list[Fact]:
        """Return what is recalled in a session for a message of `asker` (None: its owner), and count it as used."""
        place = MemoryPlace.of(session.head, session.history.reader.spans, asker=asker)
        approved = await self._approved.of(place)
        if not approved.recalls:
            return []
        now = self.now()
        facts = await self.recall.facts(place, text, now=now, shown=shown, limit=limit)
        facts = [fact for fact in facts if fact.confidence >= approved.min_confidence]
        if facts:
            await self.store.used([fact.fact_id for fact in facts], at=now)
        return facts

    async def remember(
        self,
        session: Session,
        text: str,
        *,
        kind: Kind,
        scope: Scope | None,
        seq: int,
        call_id: str,
        asker: str | None = None,
    ) -> Fact:
        """Keep what an agent wants remembered, once for each call, and return it as it is kept.

        It is screened like all that enters memory; outside the session's project, or for somebody who is not the session's
        owner, it waits for the owner. Raises: InputError (the text is too long, or empty).
        """
        place = MemoryPlace.of(session.head, session.history.reader.spans, asker=asker)
        approved = await self._approved.of(place)
        if kind not in approved.kinds:
            raise InputError(reason=f"this person's memory policy keeps nothing of the kind {kind}")
        scope = narrowed_scope(scope or place.narrowest, approved, place=place)
        wider = [WIDER] if scope in ("user", "tenant") else []
        text = self._redacted(text)
        digest = hashlib.blake2b(f"{session.session_id} {call_id}".encode(), digest_size=13).hexdigest()
        fact = Fact(
            fact_id=f"mem_{digest}",
            space=place.space(scope),
            kind=kind,
            text=text,
            sources=(Source(session.session_id, seq),),
            confidence=0.5,
            created_at=self.now(),
            origin="agent",
            slot=slot_of(text),
            findings=(*wider, *([] if place.is_owner_asking else [NOT_OWNER])),
        )
        return await self.store.put(entry_of(fact))

    async def ask_to_forget(self, session: Session, fact_id: str) -> Fact:
        """Take a fact out of recall because an agent asks; nothing is removed until a person says so.

        Raises: FactNotFoundError (there is none that this session may recall), InputError (a person entered it).
        """
        place = MemoryPlace.of(session.head, session.history.reader.spans)
        fact = await self.store.fact(fact_id)
        if fact is None or not _is_in(fact, place.spaces()) or not place.may_recall(fact):
            raise FactNotFoundError(fact_id=fact_id)
        if fact.origin == "person":
            raise InputError(reason=f"{fact_id} was entered by a person, and only a person forgets it")
        return await self.store.flag(fact.fact_id, FORGET_ASKED)

    # ---- what people do --------------------------------------------------------------------------------------------

    async def add(
        self, space: Space, text: str, *, kind: Kind = "preference", accept: bool = False, principal: Principal
    ) -> Fact:
        """Keep what a person enters.

        Raises: InputError (too long or empty; a space that is not the principal's, a tenant's being for its admins).
        """
        self._require_space(space, principal)
        fact = self._entered(space, text, kind=kind)
        return await self._kept(fact, accept=accept)

    def _entered(self, space: Space, text: str, *, kind: Kind, sources: tuple[Source, ...] = ()) -> Fact:
        text = self._redacted(text)  # before its slot is told: that is kept too
        return Fact(
            fact_id=self._manager.mint("mem"),
            space=space,
            kind=kind,
            text=text,
            sources=sources,
            confidence=0.95,
            created_at=self.now(),
            origin="person",
            slot=slot_of(text),
        )

    async def _kept(self, fact: Fact, *, accept: bool, instead_of: str | None = None) -> Fact:
        entry = entry_of(fact)
        if accept:
            entry = accepted(entry.fact)
        return await (self.store.put(entry) if instead_of is None else self.store.replace(instead_of, entry))

    async def edit(
        self,
        fact_id: str,
        *,
        text: str | None = None,
        kind: Kind | None = None,
        scope: Scope | None = None,
        accept: bool = False,
        principal: Principal,
    ) -> Fact:
        """Put a person's version in a fact's place; with `accept` alone, let a quarantined one stand. The old one stays, superseded.

        Raises: FactNotFoundError, InputError.
        """
        old = await self.fact(fact_id, principal=principal)
        if text is None and kind is None and scope is None:
            if not accept:
                raise InputError(reason="say what to change: a text, a kind, a scope, or that it is accepted")
            return await self.store.accept(old.fact_id)
        if old.status == "superseded":
            raise InputError(reason=f"{fact_id} is out of date ({old.reason}); edit {old.superseded_by or 'another'}")
        space = old.space if scope is None or scope == old.space.scope else await self._widened(old, scope)
        self._require_space(space, principal)
        fact = self._entered(space, text or old.text, kind=kind or old.kind, sources=old.sources)
        return await self._kept(fact, accept=accept, instead_of=old.fact_id)

    async def _widened(self, fact: Fact, scope: Scope) -> Space:
        """Return a fact's space at another scope: the session's or project's is that of the session it was learned in."""
        if scope in ("user", "tenant"):
            return Space(fact.space.tenant, fact.space.owner, scope, fact.space.owner if scope == "user" else "")
        for source in fact.sources:
            head = await self._manager.store.head(source.session_id)
            if head is not None:
                space = MemoryPlace.of(head).space(scope)
                if space.scope == scope:
                    return space
        raise InputError(reason=f"{fact.fact_id} was learned in no {scope} that is still there")

    async def fact(self, fact_id: str, *, principal: Principal) -> Fact:
        """Return one fact, whatever its state. Raises: FactNotFoundError (also for somebody else's)."""
        await self.follower.complete()
        fact = await self.store.fact(fact_id)
        if fact is None or not _may_see(principal, fact):
            raise FactNotFoundError(fact_id=fact_id)
        await self.follower.standing(dict.fromkeys(source.session_id for source in fact.sources))
        return await self.store.fact(fact_id) or fact

    async def facts(self, query: FactQuery, *, principal: Principal) -> FactPage:
        """Return a page of the principal's facts; an administrator sees those of the whole tenant."""
        await self.follower.complete()
        own = replace(query, tenant=principal.tenant, owner=query.owner if principal.is_admin else principal.id)
        page = await self.store.facts(own)
        _, moved = await self.follower.standing(
            dict.fromkeys(s.session_id for fact in page.items for s in fact.sources)
        )
        return await self.store.facts(own) if moved else page

    async def search(self, text: str, query: FactQuery, *, principal: Principal) -> FactPage:
        """Return the principal's facts that hold all the words, newest first. Raises: InvalidQueryError."""
        phrases = phrases_of(text)
        if not phrases:
            raise InvalidQueryError(reason="it has no letter or digit to look for")
        found: list[Fact] = []
        query = asked = replace(query, phrases=phrases)
        while True:
            page, room = await self.facts(asked, principal=principal), query.limit - len(found)
            places = [place for place, fact in enumerate(page.items, 1) if holds(fact.text, phrases)]
            if len(places) > room:  # asked for up to the last that fits: the cursor leads on from there
                asked = replace(asked, limit=places[room - 1])
                continue
            found += [page.items[place - 1] for place in places]
            if page.cursor is None or len(found) >= query.limit:
                return FactPage(tuple(found), page.cursor)
            asked = replace(query, cursor=page.cursor)

    async def forget(self, fact_id: str, *, principal: Principal) -> Fact:
        """Remove every byte of a fact from memory, and return what it was. Raises: FactNotFoundError, InputError (not theirs to forget)."""
        fact = await self.fact(fact_id, principal=principal)
        self._require_space(fact.space, principal)
        await self.store.forget(fact.fact_id)
        return fact

    # ---- small things ----------------------------------------------------------------------------------------------

    def _redacted(self, text: str) -> str:
        kept, _ = normalise(text)  # as a log keeps it
        value, _ = self._manager.writer.redacted(kept, path="memory")
        return str(value)

    @staticmethod
    def _require_space(space: Space, principal: Principal) -> None:
        own = space.tenant == principal.tenant and (space.owner == principal.id or principal.is_admin)
        if not own or (space.scope == "tenant" and not (principal.is_admin or principal.is_local)):
            raise InputError(reason=f"facts of the scope {space.scope} are not {principal.id}'s to change")


def _may_see(principal: Principal, fact: Fact) -> bool:
    if fact.space.tenant != principal.tenant:
        return False
    return fact.space.scope == "tenant" or fact.owner == principal.id or principal.is_admin


def _is_in(fact: Fact, spaces: Sequence[Space]) -> bool:
    if fact.space.scope == "tenant":
        return any(space.scope == "tenant" and space.tenant == fact.space.tenant for space in spaces)
    return fact.space in spaces
