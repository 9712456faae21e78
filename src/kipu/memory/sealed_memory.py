"""Memory under seal: where a store is encrypted, the facts learned from it are too (C20). A wrapper over any memory store.

Texts are sealed with a data key of their owner's, which the store's key vault keeps and rotates; names of tenants, owners,
projects and sessions are hidden, terms and forms are keyed hashes. Kinds, scopes, states, times and counts stay clear.
"""

from __future__ import annotations

import base64
import builtins
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kipu.errors import DataKeyMissingError, SealBrokenError, SessionErasedError
from kipu.ports.cipher import StoreKeys
from kipu.ports.memory import (
    Candidate,
    Fact,
    FactEntry,
    FactPage,
    FactQuery,
    KeptFact,
    LogStep,
    MemoryStore,
    Progress,
    Source,
    Space,
)
from kipu.ports.store import Phrase

_MOST_GENERATIONS = 1_000


class SealedMemory:
    """Keep facts so that the file tells nothing of what they say, nor whose they are (contract: `MemoryStore`).

    The names of the keys (`memory.…`) are no session's: ids of sessions have no dots.
    """

    def __init__(self, inner: MemoryStore, keys: StoreKeys) -> None:
        self.inner = inner
        self._keys = keys

    # ---- sealing ---------------------------------------------------------------------------------------------------

    async def _sealed(self, fact: Fact) -> Fact:
        name, cipher = None, None
        for generation in range(1, _MOST_GENERATIONS):
            name = self._key_name(fact.space, generation)
            try:
                cipher = await self._keys.begin(name)
                break
            except SessionErasedError:  # the person was forgotten once, and is here again
                continue
        if cipher is None:
            raise DataKeyMissingError(store="", session_id=str(name), reason="no key can be made for its facts")
        sealed = base64.b64encode(cipher.seal(fact.text.encode(), fact.fact_id.encode())).decode()
        return replace(
            fact,
            text=f"{name} {sealed}",
            space=self._hidden(fact.space),
            sources=tuple(Source(self._keys.hide(source.session_id), source.seq) for source in fact.sources),
            slot=None if fact.slot is None else self._keys.blind(fact.slot.encode()),
        )

    def _key_name(self, space: Space, generation: int) -> str:
        return f"memory.{self._keys.blind(f'{space.tenant} {space.owner}'.encode())}.{generation}"

    async def _opened(self, fact: Fact) -> Fact:
        name, _, sealed = fact.text.partition(" ")
        where = f"fact {fact.fact_id}"
        try:
            data = base64.b64decode(sealed, validate=True)
        except ValueError as error:
            raise SealBrokenError(store="", reason="not sealed", session_id=name, where=where) from error
        context = fact.fact_id.encode()
        try:
            text = (await self._keys.cipher(name)).open(data, context)
        except DataKeyMissingError:
            text = (await self._keys.cipher(name, fresh=True)).open(data, context)
        return replace(
            fact,
            text=text.decode(),
            space=self._shown(fact.space),
            sources=tuple(sorted(Source(self._keys.reveal(each.session_id), each.seq) for each in fact.sources)),
        )

    def _hidden(self, space: Space) -> Space:
        hide = self._keys.hide
        return Space(hide(space.tenant), hide(space.owner), space.scope, hide(space.subject))

    def _shown(self, space: Space) -> Space:
        reveal = self._keys.reveal
        return Space(reveal(space.tenant), reveal(space.owner), space.scope, reveal(space.subject))

    async def _entry(self, entry: FactEntry) -> FactEntry:
        return FactEntry(
            await self._sealed(entry.fact),
            tuple(map(self._keys.term, entry.terms)),
            self._keys.blind(entry.fingerprint.encode()),
            entry.replaces,
        )

    # ---- the contract ----------------------------------------------------------------------------------------------

    async def follow_log(self, step: LogStep) -> bool:
        """Take in one step, sealed."""
        learned = tuple([await self._entry(entry) for entry in step.learned])
        return await self.inner.follow_log(replace(step, session_id=self._keys.hide(step.session_id), learned=learned))

    async def progress(self, session_id: str) -> Progress:
        """Return how far memory has followed the session."""
        return await self.inner.progress(self._keys.hide(session_id))

    async def announce(self, session_id: str, token: int) -> None:
        """Note that an event comes."""
        await self.inner.announce(self._keys.hide(session_id), token)

    async def announced(self) -> builtins.list[tuple[str, int]]:
        """Return what was announced."""
        return [(self._keys.reveal(session_id), token) for session_id, token in await self.inner.announced()]

    async def settle(self, session_id: str, token: int) -> None:
        """Take an announcement back."""
        await self.inner.settle(self._keys.hide(session_id), token)

    async def put(self, entry: FactEntry) -> Fact:
        """Keep a fact sealed."""
        return await self._opened(await self.inner.put(await self._entry(entry)))

    async def replace(self, old_id: str, entry: FactEntry) -> Fact:
        """Let a person's version, sealed, stand in an older one's place."""
        return await self._opened(await self.inner.replace(old_id, await self._entry(entry)))

    async def accept(self, fact_id: str) -> Fact:
        """Make a quarantined fact active."""
        return await self._opened(await self.inner.accept(fact_id))

    async def flag(self, fact_id: str, finding: str) -> Fact:
        """Quarantine an active fact."""
        return await self._opened(await self.inner.flag(fact_id, finding))

    async def fact(self, fact_id: str) -> Fact | None:
        """Return a fact. Raises: SealBrokenError, DataKeyMissingError."""
        found = await self.inner.fact(fact_id)
        return None if found is None else await self._opened(found)

    async def facts(self, query: FactQuery) -> FactPage:
        """Return a page of facts. Raises: SealBrokenError, DataKeyMissingError."""
        hide = self._keys.hide
        page = await self.inner.facts(
            replace(
                query,
                spaces=None if query.spaces is None else tuple(map(self._hidden, query.spaces)),
                tenant=None if query.tenant is None else hide(query.tenant),
                owner=None if query.owner is None else hide(query.owner),
                session_id=None if query.session_id is None else hide(query.session_id),
                phrases=tuple(Phrase(tuple(map(self._keys.term, each.terms)), each.prefix) for each in query.phrases),
            )
        )
        return FactPage(tuple([await self._opened(fact) for fact in page.items]), page.cursor)

    async def candidates(
        self, spaces: Sequence[Space], terms: Iterable[str], *, limit: int
    ) -> builtins.list[Candidate]:
        """Return facts that hold any of the terms, and which, in clear."""
        forms = {self._keys.term(term): term for term in terms}
        found = await self.inner.candidates([*map(self._hidden, spaces)], forms, limit=limit)
        return [
            Candidate(await self._opened(each.fact), frozenset(forms[form] for form in each.terms)) for each in found
        ]

    async def frequencies(self, spaces: Sequence[Space], terms: Iterable[str]) -> tuple[int, dict[str, int]]:
        """Return how common the terms are."""
        forms = {self._keys.term(term): term for term in terms}
        total, counts = await self.inner.frequencies([*map(self._hidden, spaces)], forms)
        return total, {forms[form]: count for form, count in counts.items()}

    async def used(self, fact_ids: Sequence[str], *, at: str) -> None:
        """Count that the facts were shown."""
        await self.inner.used(fact_ids, at=at)

    async def kept(self, *, after: str = "", limit: int = 200) -> builtins.list[KeptFact]:
        """Return facts with all there is to them, in clear but for what is only hashed: terms, forms, slots."""
        found = []
        for each in await self.inner.kept(after=after, limit=limit):
            fact = await self._opened(each.entry.fact)
            undone = frozenset(Source(self._keys.reveal(source.session_id), source.seq) for source in each.undone)
            found.append(KeptFact(FactEntry(replace(fact, slot=None), (), ""), undone, each.aliases))
        return found

    async def followed(self) -> builtins.list[tuple[str, Progress]]:
        """Return how far memory has followed each session."""
        return [(self._keys.reveal(session_id), progress) for session_id, progress in await self.inner.followed()]

    async def restore(self, facts: Sequence[KeptFact], followed: Sequence[tuple[str, Progress]]) -> None:
        """Keep what another memory kept, sealed."""
        hide = self._keys.hide
        sealed = [
            KeptFact(
                await self._entry(each.entry),
                frozenset(Source(hide(source.session_id), source.seq) for source in each.undone),
                each.aliases,
            )
            for each in facts
        ]
        await self.inner.restore(sealed, [(hide(session_id), progress) for session_id, progress in followed])

    async def forget(self, fact_id: str) -> bool:
        """Remove every byte of a fact."""
        return await self.inner.forget(fact_id)

    async def forget_session(self, session_id: str) -> int:
        """Remove what only this session taught."""
        return await self.inner.forget_session(self._keys.hide(session_id))

    async def forget_person(self, tenant: str, owner: str) -> int:
        """Destroy the keys of the person's facts, so that no backup opens them, and remove every byte of them."""
        hidden_tenant, hidden_owner = self._keys.hide(tenant), self._keys.hide(owner)
        query = FactQuery(tenant=hidden_tenant, owner=hidden_owner, statuses=None, limit=500)
        names: set[str] = set()
        while True:
            page = await self.inner.facts(query)
            names.update(fact.text.partition(" ")[0] for fact in page.items)
            if page.cursor is None:
                break
            query = replace(query, cursor=page.cursor)
        for name in sorted(names):
            await self._keys.shred(name)
        return await self.inner.forget_person(hidden_tenant, hidden_owner)

    async def close(self) -> None:
        """Close the memory inside; the keys are the store's."""
        await self.inner.close()
