"""The store contract once more, as plain lists and dicts, and as little code of the stores' as possible.

It says what a call must return or which errors it may raise; where several refusals apply, any of them is right.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from kipu import errors
from kipu.ports.store import LEASE_FREE_TYPES, Appended, Binding, Lease, Outcome, Record

Refusals = set[type[Exception]]


@dataclass
class ModelSession:
    """One session as the contract describes it."""

    base_seq: int
    created_at: str
    last_activity_at: str
    events: list[tuple[int, Record]] = field(default_factory=list)
    title: str | None = None
    tags: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    owner: str | None = None
    until_us: int = 0
    token: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    terms: dict[int, tuple[str, ...]] = field(default_factory=dict)
    indexed_seq: int = 0
    adopted: list[Record] = field(default_factory=list)

    @property
    def last_seq(self) -> int:
        """Return the newest number, or the base of an empty session."""
        return self.events[-1][0] if self.events else self.base_seq


@dataclass(frozen=True)
class Change:
    """What one append of the machine does to the head, in the model's own terms."""

    title: str | None = None
    tag: str | None = None
    name: str | None = None
    value: str | None = None
    waits: bool = False
    settles: bool = False
    active: bool = False


class StoreModel:
    """All sessions, keys, bindings and leases."""

    def __init__(self) -> None:
        self.sessions: dict[str, ModelSession] = {}
        self.erased: set[str] = set()
        self.bindings: dict[str, str] = {}
        self.outcomes: dict[str, Appended] = {}
        self.dead: set[str] = set()
        self.now_us = 0

    def is_held(self, session: ModelSession) -> bool:
        """Return whether somebody's lease is live."""
        return session.owner is not None and session.until_us > self.now_us and session.owner not in self.dead

    def refusals(
        self,
        session_id: str,
        types: list[str],
        *,
        token: int | None = None,
        expected_seq: int | None = None,
        bind: Binding | None = None,
    ) -> Refusals:
        """Return the errors an append may raise; none means that it must succeed."""
        found: Refusals = set()
        session = self.sessions.get(session_id)
        begins = "session_init" in types
        if session is None and not begins:
            found |= {errors.SessionNotFoundError, errors.SessionErasedError}
        if session is None and begins and session_id in self.erased:
            found.add(errors.SessionErasedError)
        if session is not None and begins:
            found.add(errors.SessionExistsError)
        newest = session.token if session else 0
        if token is not None and token != newest:
            found.add(errors.LeaseLostError)
        if expected_seq is not None and expected_seq != (session.last_seq if session else 0):
            found.add(errors.ConflictError)
        needs = any(each not in LEASE_FREE_TYPES for each in types)
        if session is not None and token is None and needs and self.is_held(session):
            found.add(errors.LeaseRequiredError)
        if bind is not None and self.bindings.get(bind.key) != bind.expected:
            found.add(errors.ConflictError)
        return found

    def begin(self, session_id: str, *, base_seq: int, now: str) -> None:
        """Make an empty session."""
        self.sessions[session_id] = ModelSession(base_seq, now, now)

    def append(
        self, session_id: str, records: list[Record], *, change: Change, bind: Binding | None, key: str | None, now: str
    ) -> Appended:
        """Append what was not refused."""
        session = self.sessions[session_id]
        first = session.last_seq + 1
        session.events += list(enumerate(records, first))
        outcome = Appended(session_id, first, session.last_seq)
        self._change(session, change, first=first, now=now)
        if bind is not None:
            self.bindings[bind.key] = session_id
        if key is not None:
            self.outcomes[key] = outcome
        return outcome

    def _change(self, session: ModelSession, change: Change, *, first: int, now: str) -> None:
        if change.title is not None:
            session.title = change.title
        if change.tag is not None:
            session.tags = [change.tag]
        if change.name is not None and change.value is not None:
            session.metadata[change.name] = change.value
        elif change.name is not None:
            session.metadata.pop(change.name, None)
        if change.settles and session.waiting:
            session.waiting.remove(session.waiting[0])
        if change.waits:
            session.waiting.append(first)
        if change.active:
            session.last_activity_at = max(session.last_activity_at, now)

    def claim(self, session_id: str, *, owner: str, ttl_us: int) -> int | None:
        """Return the token that a claim must give, or None where it must give none."""
        session = self.sessions[session_id]
        if session.owner != owner and self.is_held(session):
            return None
        session.owner, session.until_us = owner, self.now_us + ttl_us
        session.token += 1
        return session.token

    def adopt_refusals(self, lease: Lease, count: int) -> Refusals:
        """Return the errors that taking in `count` more shared events may raise."""
        session = self.sessions.get(lease.session_id)
        if session is None:
            return {errors.SessionNotFoundError, errors.SessionErasedError}
        found: Refusals = set() if self.holds(lease) else {errors.LeaseLostError}
        if len(session.adopted) + count > session.base_seq:
            found.add(errors.ConflictError)
        return found

    def stand_alone(self, session_id: str, *, token: int) -> Refusals:
        """Make what was taken in the session's own, or return the errors that trying it may raise."""
        session = self.sessions[session_id]
        refusals = self.refusals(session_id, ["fork_detached"], token=token)
        if len(session.adopted) != session.base_seq:
            refusals.add(errors.ConflictError)
        if session.adopted and not refusals:
            session.events[:0] = list(enumerate(session.adopted, 1))
            session.base_seq, session.indexed_seq, session.adopted = 0, 0, []
        return refusals

    def holds(self, lease: Lease) -> bool:
        """Return whether the lease is the newest and was not given back."""
        session = self.sessions.get(lease.session_id)
        return session is not None and session.token == lease.token and session.owner == lease.owner

    def window(
        self, session_id: str, *, after: int, until: int | None, limit: int, backwards: bool
    ) -> list[tuple[int, Record]]:
        """Return what a read must give."""
        events = [e for e in self.sessions[session_id].events if e[0] > after and (until is None or e[0] <= until)]
        return events[::-1][:limit] if backwards else events[:limit]

    def runnable(self) -> set[str]:
        """Return the sessions that want a worker and have none."""
        return {name for name, session in self.sessions.items() if session.waiting and not self.is_held(session)}

    def listed(self, *, tag: str | None = None) -> list[str]:
        """Return the ids by activity, newest first; among equals any order is right, so times come with them."""
        found = [name for name, session in self.sessions.items() if tag is None or tag in session.tags]
        return sorted(found, key=lambda name: self.sessions[name].last_activity_at, reverse=True)

    def hits(self, term: str) -> set[tuple[str, int]]:
        """Return where a term was indexed."""
        return {
            (name, seq)
            for name, session in self.sessions.items()
            for seq, terms in session.terms.items()
            if term in terms
        }

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep a blob and return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        self.sessions[session_id].blobs[digest] = data
        return digest

    def keys(self, session_id: str) -> list[str]:
        """Return the keys that lead to a session."""
        return sorted(key for key, target in self.bindings.items() if target == session_id)

    def outcomes_of(self, session_id: str) -> list[Outcome]:
        """Return which batches of a session have a key (no run of the machine is as long as the retention)."""
        places = [(key, place) for key, place in self.outcomes.items() if place.session_id == session_id]
        found = [Outcome(key, place.first_seq, place.last_seq) for key, place in places]
        return sorted(found, key=lambda outcome: outcome.first_seq)

    def erase(self, session_id: str) -> None:
        """Forget everything of a session but that it was."""
        del self.sessions[session_id]
        self.erased.add(session_id)
        self.bindings = {key: target for key, target in self.bindings.items() if target != session_id}
        self.outcomes = {key: outcome for key, outcome in self.outcomes.items() if outcome.session_id != session_id}
