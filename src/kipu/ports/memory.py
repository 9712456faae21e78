"""The seam to memory: facts that outlive sessions, where they came from, and where they may be recalled."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, TypeAlias

from kipu.ports.store import Phrase

Scope: TypeAlias = Literal["session", "project", "user", "tenant"]
Kind: TypeAlias = Literal["preference", "project_fact", "verified_experience"]
FactStatus: TypeAlias = Literal["active", "quarantined", "superseded"]
Origin: TypeAlias = Literal["consolidation", "agent", "person"]

SCOPES: tuple[Scope, ...] = ("session", "project", "user", "tenant")  # the narrowest first
KINDS: tuple[Kind, ...] = ("preference", "project_fact", "verified_experience")
STATUSES: tuple[FactStatus, ...] = ("active", "quarantined", "superseded")


class Source(NamedTuple):
    """The event that a fact was learned from."""

    session_id: str
    seq: int


class Space(NamedTuple):
    """Where a fact may be recalled: `subject` is the session, project or user of its scope, "" for a whole tenant.

    Facts of a project are their owner's: another user who works on it does not see them. Those of a tenant are for all its
    users: in a query, their owner is not looked at.
    """

    tenant: str
    owner: str
    scope: Scope
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that memory keeps. Times are ISO 8601 UTC text with microseconds and `Z`.

    A fact is never overwritten by a newer one: it is `superseded`, and says by which and why. One that looks like an attack is
    `quarantined` with its `findings`, and not recalled. `slot` names what it is about, so that a newer value replaces it.
    """

    fact_id: str
    space: Space
    kind: Kind
    text: str
    sources: tuple[Source, ...]
    confidence: float
    created_at: str
    origin: Origin = "consolidation"
    status: FactStatus = "active"
    slot: str | None = None
    findings: tuple[str, ...] = ()
    superseded_by: str | None = None
    reason: str | None = None  # why it is superseded: replaced, edited, rewound
    used_at: str | None = None
    uses: int = 0

    @property
    def owner(self) -> str:
        """Return whose fact it is."""
        return self.space.owner


@dataclass(frozen=True, slots=True)
class FactEntry:
    """A fact with what it is found by: its search terms, and the form in which equal facts are equal.

    `replaces` names facts of the same space that it makes out of date.
    """

    fact: Fact
    terms: tuple[str, ...]
    fingerprint: str
    replaces: tuple[str, ...] = ()


class Progress(NamedTuple):
    """How far memory has followed one session's log: all up to `seq` is in it, as the two anchors of the head stood then."""

    seq: int = 0
    consolidated_seq: int = 0
    rewind_seq: int = 0


@dataclass(frozen=True, slots=True)
class Undone:
    """A stretch of one session's log that a rewind undid: after < seq <= until."""

    after: int
    until: int


@dataclass(frozen=True, slots=True)
class LogStep:
    """What one event of a session's log means for memory; applied whole, and once: a step whose seq memory has passed is not."""

    session_id: str
    progress: Progress
    learned: tuple[FactEntry, ...] = ()
    undone: Undone | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class FactQuery:
    """Which facts to give. Every condition given must hold; of `spaces`, one. Newest first; `cursor` is from the page before."""

    spaces: tuple[Space, ...] | None = None
    tenant: str | None = None
    owner: str | None = None
    statuses: frozenset[FactStatus] | None = frozenset({"active"})
    kinds: frozenset[Kind] | None = None
    session_id: str | None = None  # facts that were learned there
    phrases: tuple[Phrase, ...] = ()  # every one must be in the text
    limit: int = 100
    cursor: str | None = None


class Candidate(NamedTuple):
    """A fact that shares terms with what is asked, and which."""

    fact: Fact
    terms: frozenset[str]


class FactPage(NamedTuple):
    """Some facts and, where there are more, the cursor that leads on."""

    items: tuple[Fact, ...]
    cursor: str | None = None


class KeptFact(NamedTuple):
    """All that a memory store keeps of one fact: which of its sources were undone, and under which other ids it was learned."""

    entry: FactEntry
    undone: frozenset[Source] = frozenset()
    aliases: tuple[str, ...] = ()


class MemoryErasure(Protocol):
    """Forget whole sessions and people; what erasing them asks of memory (C20).

    Contract:
    - When a call has returned, no byte of what it forgot is in memory's files. Killed in the middle it goes on when called
      again; calling it for what is gone already is harmless and returns 0.
    """

    async def forget_session(self, session_id: str) -> int:
        """Remove the facts whose only source is this session, and this session as a source of others; return how many facts went."""
        ...

    async def forget_person(self, tenant: str, owner: str) -> int:
        """Remove every fact of this owner, in every scope; return how many went."""
        ...


class MemoryStore(MemoryErasure, Protocol):
    """Keep facts, durably, for any number of processes at once.

    Contract:
    - Every method is one transaction, durable on return. A cancelled call has happened whole or not at all.
    - `follow_log` is idempotent by (session, seq), so that a step may be applied by whoever gets to it first (A68).
    - A fact equal to an active one of the same space (by fingerprint) becomes a source of that one, and its id leads there.
      One with the same slot supersedes what stood in it; nothing is overwritten. What a person entered only a person replaces,
      and what an agent noted replaces agents' notes only.
    - A fact all of whose sources were undone is superseded ("rewound"), and what it had replaced is active again.
    - Texts, names and terms are opaque: a wrapper may seal and hash them. "Cannot read" is an error, never "nothing known" (A50).

    Raises everywhere: StoreUnavailableError, StoreFullError, StoreReadOnlyError, StoreCorruptError, StoreClosedError.
    """

    async def follow_log(self, step: LogStep) -> bool:
        """Take in one step of a session's log; False when memory had passed it before."""
        ...

    async def progress(self, session_id: str) -> Progress:
        """Return how far memory has followed the session."""
        ...

    async def announce(self, session_id: str, token: int) -> None:
        """Note, before it is appended, that the session's log gets an event that memory has to follow."""
        ...

    async def announced(self) -> builtins.list[tuple[str, int]]:
        """Return what was announced and not settled."""
        ...

    async def settle(self, session_id: str, token: int) -> None:
        """Take an announcement back: what it announced is in memory, or will never be in the log."""
        ...

    async def put(self, entry: FactEntry) -> Fact:
        """Keep a fact that is in no consolidation, and return it, or the equal one that stands there. The same id is kept once."""
        ...

    async def replace(self, old_id: str, entry: FactEntry) -> Fact:
        """Let a person's fact supersede an older one ("edited"). Raises: FactNotFoundError."""
        ...

    async def accept(self, fact_id: str) -> Fact:
        """Make a quarantined fact active. Raises: FactNotFoundError."""
        ...

    async def flag(self, fact_id: str, finding: str) -> Fact:
        """Quarantine an active fact, for a person to look at. Raises: FactNotFoundError."""
        ...

    async def fact(self, fact_id: str) -> Fact | None:
        """Return a fact by its id, or by the id under which an equal one was learned."""
        ...

    async def facts(self, query: FactQuery) -> FactPage:
        """Return a page of facts, newest first."""
        ...

    async def candidates(
        self, spaces: Sequence[Space], terms: Iterable[str], *, limit: int
    ) -> builtins.list[Candidate]:
        """Return active facts of these spaces that hold any of the terms, those with most first."""
        ...

    async def frequencies(self, spaces: Sequence[Space], terms: Iterable[str]) -> tuple[int, dict[str, int]]:
        """Return how many active facts the spaces have, and in how many of them each term is."""
        ...

    async def used(self, fact_ids: Sequence[str], *, at: str) -> None:
        """Count that these facts were shown to a model."""
        ...

    async def forget(self, fact_id: str) -> bool:
        """Remove every byte of one fact; False where there is none."""
        ...

    async def kept(self, *, after: str = "", limit: int = 200) -> builtins.list[KeptFact]:
        """Return facts by their ids, all there is to them, for another memory to keep. Terms and forms may be left out."""
        ...

    async def followed(self) -> builtins.list[tuple[str, Progress]]:
        """Return how far memory has followed each session."""
        ...

    async def restore(self, facts: Sequence[KeptFact], followed: Sequence[tuple[str, Progress]]) -> None:
        """Keep what another memory kept, as it was, in place of what stands under these ids."""
        ...

    async def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        ...


def with_status(fact: Fact, status: FactStatus, *, reason: str | None = None, by: str | None = None) -> Fact:
    """Return the fact in another state."""
    return replace(fact, status=status, reason=reason, superseded_by=by)
