"""A Hypothesis state machine: any order of calls on a store, each answer compared with an independent model."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kipu import errors
from kipu.ports.head import Head, HeadPatch
from kipu.ports.store import Appended, Binding, EventStore, IndexEntry, Lease, Phrase, Record, SearchQuery, SessionQuery
from kipu.testing.conformance.expectation import expect, expect_equal
from kipu.testing.conformance.place import PlaceMaker
from kipu.testing.conformance.subject import Subject
from kipu.testing.store_model import Change, ModelSession, Refusals, StoreModel

T = TypeVar("T")

# Often the same few, so that calls meet each other; "a" is never erased.
SESSIONS = st.sampled_from(["a", "a", "a", "b", "b", "c"])
OWNERS = st.sampled_from([1, 2])
KEYS = st.sampled_from(["cli:1", "cli:2", "CLI:1"])
RETRY_KEYS = st.sampled_from([None, None, None, *(f"key {n}" for n in range(4))])
TYPES = st.sampled_from(["user_message", "agent_message", "note", "unknown"])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
PICKS = st.sampled_from(["none", "none", "right", "wrong"])
# Most appends are plain, and those that are not mostly differ in one thing.
_PLAIN = ("none", "none", "none", None)
REQUESTS = st.sampled_from(
    [
        *[_PLAIN] * 4,
        *[("right", "none", "none", None)] * 2,
        ("wrong", "none", "none", None),
        ("none", "right", "none", "key 1"),
        ("none", "wrong", "none", "key 2"),
        ("none", "none", "right", "key 3"),
        ("none", "none", "wrong", None),
        ("none", "none", "none", "key 1"),
        ("right", "right", "right", "key 2"),
        ("wrong", "wrong", "wrong", "key 3"),
    ]
)
CHANGES = st.builds(
    Change,
    title=st.none() | TEXTS,
    tag=st.none() | st.sampled_from(["x", "y"]),
    name=st.none() | st.sampled_from(["m", "n"]),
    value=st.none() | TEXTS,
    waits=st.booleans(),
    settles=st.booleans(),
    active=st.booleans(),
)
TTL_S = 15
CALL_TIMEOUT_S = 60


def patch_of(change: Change, session: ModelSession | None, *, now: str) -> HeadPatch:
    """Return the head patch that says what the model's change says."""
    values: dict[str, Any] = {}
    if change.title is not None:
        values["title"] = change.title
    if change.tag is not None:
        values["tags"] = [change.tag]
    settles = change.settles and session is not None and session.waiting
    return HeadPatch(
        set=values,
        merge={"metadata": {change.name: change.value}} if change.name else {},
        insert_at={"waiting": [0]} if change.waits else {},
        discard={"waiting": [session.waiting[0]]} if settles and session else {},
        max={"last_activity_at": now} if change.active else {},
    )


class StoreMachine(RuleBasedStateMachine):
    """Rules over one store at one place. Subclass it with `make_place`, or use `machine_for`."""

    make_place: PlaceMaker

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="kipu-stateful-", ignore_cleanup_errors=True)
        self._runner = asyncio.Runner()
        self.subject = Subject(type(self).make_place(Path(self._folder.name)))
        self.model = StoreModel()
        self.model.now_us = self.subject.clock.now_us()
        self.leases: list[Lease] = []
        self.generations = {1: 0, 2: 0}
        self.store: EventStore = self.run(self.subject.open())

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run one call to its end."""

        async def within() -> T:
            return await asyncio.wait_for(call, CALL_TIMEOUT_S)

        return self._runner.run(within())

    def refuse(self, call: Coroutine[Any, Any, Any], refusals: Refusals) -> None:
        """Say that a call must raise one of `refusals`."""
        try:
            outcome = self.run(call)
        except tuple(refusals):
            return
        raise AssertionError(f"{outcome} where one of {[kind.__name__ for kind in refusals]} must be raised")

    def teardown(self) -> None:
        """Close and remove the place."""
        self.run(self.subject.close())
        self._runner.close()
        self._folder.cleanup()

    @property
    def now(self) -> str:
        """Return the clock's time as text."""
        return self.subject.clock.iso()

    @initialize()
    def begin_one(self) -> None:
        """Start with one session."""
        self.begin("a", base_seq=0, retry_key=None, bind="none", key="cli:1")

    @rule(session_id=SESSIONS, base_seq=st.sampled_from([0, 0, 7]), retry_key=RETRY_KEYS, bind=PICKS, key=KEYS)
    def begin(self, session_id: str, *, base_seq: int, retry_key: str | None, bind: str, key: str) -> None:
        """Begin a session, with a binding or without."""
        records = [self.subject.record(event_type="session_init")]
        patch = HeadPatch(set={"created_at": self.now, "last_activity_at": self.now, "base_seq": base_seq})
        binding = self._binding(bind, key)
        call = self.store.append(session_id, records, head=patch, bind=binding, idempotency_key=retry_key)
        self._judge(
            call,
            session_id,
            records,
            change=Change(),
            binding=binding,
            retry_key=retry_key,
            base_seq=base_seq,
            refusals=self.model.refusals(session_id, ["session_init"], bind=binding),
        )

    @rule(
        session_id=SESSIONS,
        types=st.lists(TYPES, min_size=1, max_size=4),
        change=CHANGES,
        request=REQUESTS,
        key=KEYS,
    )
    def append(
        self,
        session_id: str,
        *,
        types: list[str],
        change: Change,
        request: tuple[str, str, str, str | None],
        key: str,
    ) -> None:
        """Append a batch, with and without token, expected_seq, binding and key, right and wrong ones."""
        self.move_clock(1)
        session = self.model.sessions.get(session_id)
        newest, last = (session.token, session.last_seq) if session else (0, 0)
        pick_token, pick_expected, pick_binding, retry_key = request
        token = {"none": None, "right": newest, "wrong": newest - 1}[pick_token]
        expected = {"none": None, "right": last, "wrong": last + 1}[pick_expected]
        binding = self._binding(pick_binding, key)
        records = [self.subject.record(f"{kind} {n}", event_type=kind, tokens=n) for n, kind in enumerate(types)]
        call = self.store.append(
            session_id,
            records,
            head=patch_of(change, session, now=self.now),
            token=token,
            expected_seq=expected,
            bind=binding,
            idempotency_key=retry_key,
        )
        refusals = self.model.refusals(session_id, types, token=token, expected_seq=expected, bind=binding)
        self._judge(
            call,
            session_id,
            records,
            change=change,
            binding=binding,
            retry_key=retry_key,
            base_seq=None,
            refusals=refusals,
        )

    def _binding(self, pick: str, key: str) -> Binding | None:
        now = self.model.bindings.get(key)
        return {"none": None, "right": Binding(key, now), "wrong": Binding(key, "a" if now != "a" else None)}[pick]

    def _judge(
        self,
        call: Coroutine[Any, Any, Appended],
        session_id: str,
        records: list[Record],
        *,
        change: Change,
        binding: Binding | None,
        retry_key: str | None,
        base_seq: int | None,
        refusals: Refusals,
    ) -> None:
        known = self.model.outcomes.get(retry_key) if retry_key is not None else None
        if known is not None:
            expect_equal(self.run(call), known._replace(duplicate=True), what="the outcome of a retry")
        elif refusals:
            self.refuse(call, refusals)
        else:
            if base_seq is not None:
                self.model.begin(session_id, base_seq=base_seq, now=self.now)
            outcome = self.model.append(session_id, records, change=change, bind=binding, key=retry_key, now=self.now)
            expect_equal(self.run(call), outcome, what="the outcome of an append")

    @rule(session_id=SESSIONS, owner=OWNERS)
    def claim(self, session_id: str, *, owner: int) -> None:
        """Claim a session's lease."""
        self._claim(session_id, owner=self._owner(owner))

    def _owner(self, number: int) -> str:
        return f"host/boot/{number}/{self.generations[number]}/w"

    def _claim(self, session_id: str, *, owner: str) -> None:
        call = self.store.claim(session_id, owner=owner, ttl_s=TTL_S)
        if session_id not in self.model.sessions:
            self.refuse(call, {errors.SessionNotFoundError, errors.SessionErasedError})
            return
        token = self.model.claim(session_id, owner=owner, ttl_us=TTL_S * 1_000_000)
        lease = self.run(call)
        expect_equal(lease and lease.token, token, what="the token of a claim")
        if lease is not None:
            expect_equal((lease.owner, lease.expires_at), (owner, self.subject.clock.iso(TTL_S)), what="the lease")
            self.leases.append(lease)

    @precondition(lambda self: bool(self.leases))
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """Renew any lease that was ever given."""
        lease = data.draw(st.sampled_from(self.leases))
        session = self.model.sessions.get(lease.session_id)
        if session is None or not self.model.holds(lease):
            lost: Refusals = {errors.LeaseLostError, errors.SessionNotFoundError, errors.SessionErasedError}
            self.refuse(self.store.renew(lease), lost if session is None else {errors.LeaseLostError})
            return
        session.until_us = self.model.now_us + TTL_S * 1_000_000
        renewed = self.run(self.store.renew(lease))
        expect_equal(
            (renewed.token, renewed.expires_at), (lease.token, self.subject.clock.iso(TTL_S)), what="the renewed lease"
        )

    @precondition(lambda self: bool(self.leases))
    @rule(data=st.data(), pick=PICKS)
    def release(self, data: st.DataObject, pick: str) -> None:
        """Release any lease that was ever given, seeing or not seeing the newest event."""
        lease = data.draw(st.sampled_from(self.leases))
        session = self.model.sessions.get(lease.session_id)
        last = session.last_seq if session else 0
        expected = {"none": None, "right": last, "wrong": last - 1}[pick]
        holds = self.model.holds(lease)
        released = self.run(self.store.release(lease, expected_seq=expected))
        expect_equal(released, not (holds and pick == "wrong"), what="whether the lease was given back")
        if session is not None and holds and released:
            session.owner, session.until_us = None, 0

    @rule(seconds=st.sampled_from([1, 8, 16, -20]))
    def move_clock(self, seconds: int) -> None:
        """Let time pass, or jump back."""
        self.subject.clock.advance(seconds)
        self.model.now_us = self.subject.clock.now_us()

    @rule(owner=OWNERS)
    def kill(self, owner: int) -> None:
        """Let an owner be dead, its leases over, and another process in its place."""
        self.subject.liveness.kill(self._owner(owner))
        self.model.dead.add(self._owner(owner))
        self.generations[owner] += 1

    @rule(session_id=SESSIONS, key=KEYS, pick=PICKS)
    def bind(self, session_id: str, *, key: str, pick: str) -> None:
        """Bind a key, expecting rightly or wrongly."""
        binding = self._binding("right" if pick == "none" else pick, key)
        expected = binding.expected if binding else None
        call = self.store.bind(key, session_id, expected=expected)
        refusals: Refusals = set()
        if session_id not in self.model.sessions:
            refusals |= {errors.SessionNotFoundError, errors.SessionErasedError}
        if self.model.bindings.get(key) != expected:
            refusals.add(errors.ConflictError)
        if refusals:
            self.refuse(call, refusals)
            return
        self.run(call)
        self.model.bindings[key] = session_id

    @rule(
        session_id=SESSIONS,
        after=st.sampled_from([0, 0, 1, 2, 8]),
        until=st.sampled_from([None, None, 0, 1, 3, 9]),
        limit=st.sampled_from([1, 2, 3, 50]),
        backwards=st.booleans(),
    )
    def read(self, session_id: str, *, after: int, until: int | None, limit: int, backwards: bool) -> None:
        """Read any window."""
        call = self.store.read(session_id, after=after, until=until, limit=limit, backwards=backwards)
        if session_id not in self.model.sessions:
            self.refuse(call, {errors.SessionNotFoundError, errors.SessionErasedError})
            return
        expected = self.model.window(session_id, after=after, until=until, limit=limit, backwards=backwards)
        read = [(event.seq, event.record._replace(urgent=False)) for event in self.run(call)]
        expect_equal(read, expected, what="the window")

    @rule(session_id=SESSIONS)
    def tell_keys(self, session_id: str) -> None:
        """Ask which keys lead to a session, and which batches answer to retries."""
        if session_id not in self.model.sessions:
            self.refuse(self.store.outcomes(session_id), {errors.SessionNotFoundError})
            self.refuse(self.store.keys(session_id), {errors.SessionNotFoundError})
            return
        expect_equal(self.run(self.store.keys(session_id)), self.model.keys(session_id), what="the keys")
        outcomes = self.run(self.store.outcomes(session_id))
        expect_equal(outcomes, self.model.outcomes_of(session_id), what="the outcomes")

    @rule(session_id=SESSIONS, data=st.binary(max_size=40))
    def keep_blob(self, session_id: str, *, data: bytes) -> None:
        """Keep a blob and read all blobs back."""
        call = self.store.put_blob(session_id, data)
        if session_id not in self.model.sessions:
            self.refuse(call, {errors.SessionNotFoundError, errors.SessionErasedError})
            return
        expect_equal(self.run(call), self.model.put_blob(session_id, data), what="the digest")
        blobs = self.model.sessions[session_id].blobs
        expect_equal(sorted(self.run(self.store.blobs(session_id))), sorted(blobs), what="the blobs")
        for digest, kept in blobs.items():
            expect_equal(self.run(self.store.get_blob(session_id, digest)), kept, what="a blob")

    @precondition(lambda self: self.subject.place.capabilities.search)
    @rule(session_id=SESSIONS, term=st.sampled_from(["red", "blue", "悬空"]))
    def take_in(self, session_id: str, *, term: str) -> None:
        """Index the newest event of a session under a term, or again under the one it has: an event's terms never change."""
        session = self.model.sessions.get(session_id)
        if session is not None:
            entry = IndexEntry(session_id, session.last_seq, session.terms.get(session.last_seq, ("first", term)))
            self.run(self.store.index([entry], indexed={session_id: session.last_seq}))
            session.terms[session.last_seq] = entry.terms
            session.indexed_seq = max(session.indexed_seq, session.last_seq)

    @precondition(lambda self: self.subject.place.capabilities.search)
    @rule(term=st.sampled_from(["red", "blue", "悬空", "first", "nothing"]))
    def search(self, term: str) -> None:
        """Search for a term."""
        page = self.run(self.store.search(SearchQuery((Phrase((term,)),), limit=1000)))
        expect_equal({(hit.session_id, hit.seq) for hit in page.items}, self.model.hits(term), what=f"hits of {term}")

    @precondition(lambda self: self.subject.place.capabilities.search)
    @rule()
    def drop_index(self) -> None:
        """Forget the index."""
        self.run(self.store.drop_index())
        for session in self.model.sessions.values():
            session.terms, session.indexed_seq = {}, 0

    @precondition(lambda self: bool(self.leases))
    @rule(data=st.data(), count=st.sampled_from([1, 3, 7]), stands=st.booleans())
    def adopt(self, data: st.DataObject, *, count: int, stands: bool) -> None:
        """Take in shared events behind those there, and maybe stand alone, under any lease that was ever given."""
        lease = data.draw(st.sampled_from([*self.leases, *filter(self.model.holds, self.leases * 3)]))
        name, session = lease.session_id, self.model.sessions.get(lease.session_id)
        records = [self.subject.record(f"shared {number}", tokens=number) for number in range(count)]
        call: Any = self.store.adopt(name, records, after=len(session.adopted) if session else 0, lease=lease)
        if refusals := self.model.adopt_refusals(lease, count):
            self.refuse(call, refusals)
        elif session is not None:
            session.adopted += records
            expect_equal(self.run(call), len(session.adopted), what="where the shared events end")
        if session is None or not stands:
            return
        refusals = self.model.stand_alone(name, token=lease.token)
        alone = [self.subject.record("alone", event_type="fork_detached")]
        call = self.store.append(name, alone, head=HeadPatch(set={"base_seq": 0}), token=lease.token)
        self._judge(call, name, alone, change=Change(), binding=None, retry_key=None, base_seq=None, refusals=refusals)

    @precondition(lambda self: bool(self.leases))
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        """Erase under any lease that was ever given, mostly one that holds."""
        lease = data.draw(st.sampled_from([*self.leases, *filter(self.model.holds, self.leases * 3)]))
        if lease.session_id == "a":
            return
        if lease.session_id not in self.model.sessions:
            self.refuse(self.store.erase(lease.session_id, lease=lease), {errors.SessionNotFoundError})
        elif not self.model.holds(lease):
            self.refuse(self.store.erase(lease.session_id, lease=lease), {errors.LeaseLostError})
        else:
            self._bind_free_key(lease.session_id)
            self.run(self.store.erase(lease.session_id, lease=lease))
            self.model.erase(lease.session_id)
            again = [self.subject.record(event_type="session_init")]
            self.refuse(self.store.append(lease.session_id, again), {errors.SessionErasedError})

    def _bind_free_key(self, session_id: str) -> None:
        """Let a key lead to a session that is about to be erased: rarely would one by chance."""
        free = next((key for key in ("cli:1", "cli:2", "CLI:1") if key not in self.model.bindings), None)
        if free is not None:
            self.run(self.store.bind(free, session_id))
            self.model.bindings[free] = session_id

    @precondition(lambda self: self.subject.place.capabilities.persistent)
    @rule()
    def reopen(self) -> None:
        """Close the store and open the place again."""
        self.store = self.run(self.subject.reopen())

    @rule(tag=st.none() | st.sampled_from(["x", "y"]), limit=st.integers(1, 3))
    def list_pages(self, *, tag: str | None, limit: int) -> None:
        """List by pages."""
        tags = frozenset({tag}) if tag else frozenset()
        heads: list[Head] = []
        cursor: str | None = None
        while True:
            page = self.run(self.store.list(SessionQuery(tags=tags, limit=limit, cursor=cursor)))
            heads += page.items
            cursor = page.cursor
            if cursor is None:
                break
        expected = self.model.listed(tag=tag)
        expect_equal(sorted(head.session_id for head in heads), sorted(expected), what="the sessions listed")
        times = [self.model.sessions[head.session_id].last_activity_at for head in heads]
        expect_equal(times, sorted(times, reverse=True), what="their times")

    @invariant()
    def heads_agree(self) -> None:
        """Every head says what the model says."""
        for name, session in self.model.sessions.items():
            head = self.run(self.store.head(name))
            expect(head, f"session {name} must have a head")
            if head:
                expect_equal(seen_in(head), seen_in_model(session), what=f"the head of {name}")
        for name in self.model.erased:
            expect_equal(self.run(self.store.head(name)), None, what=f"the head of the erased {name}")

    @invariant()
    def tails_agree(self) -> None:
        """The newest events of every log are those of the model."""
        for name in self.model.sessions:
            tail = self.run(self.store.read(name, limit=2, backwards=True))
            expected = self.model.window(name, after=0, until=None, limit=2, backwards=True)
            expect_equal(
                [(event.seq, event.record._replace(urgent=False)) for event in tail],
                expected,
                what=f"the tail of {name}",
            )

    @invariant()
    def keys_and_work_agree(self) -> None:
        """Keys lead where the model says, and the same sessions are runnable."""
        for key in ("cli:1", "cli:2", "CLI:1"):
            expect_equal(self.run(self.store.resolve(key)), self.model.bindings.get(key), what=f"where {key} leads")
        heads = self.run(self.store.runnable(now=self.now, limit=100))
        expect_equal({head.session_id for head in heads}, self.model.runnable(), what="runnable sessions")


def seen_in(head: Head) -> dict[str, Any]:
    """Return what the model knows, out of a head."""
    return {
        "title": head.title,
        "tags": list(head.tags),
        "metadata": head.metadata,
        "waiting": list(head.waiting),
        "last_seq": head.last_seq,
        "count": head.event_count,
        "tokens": head.token_count,
        "active": head.last_activity_at,
        "lease": (head.lease_owner, head.lease_token),
        "indexed": head.indexed_seq,
    }


def seen_in_model(session: ModelSession) -> dict[str, Any]:
    """Return the same out of the model."""
    return {
        "title": session.title,
        "tags": session.tags,
        "metadata": session.metadata,
        "waiting": sorted(session.waiting),
        "last_seq": session.last_seq,
        "count": len(session.events),
        "tokens": sum(record.tokens for _, record in session.events),
        "active": session.last_activity_at,
        "lease": (session.owner, session.token),
        "indexed": session.indexed_seq,
    }


def machine_for(make_place: PlaceMaker) -> type[StoreMachine]:
    """Return the state machine over places of one kind, for `hypothesis.stateful.run_state_machine_as_test`."""
    return type("StoreMachineHere", (StoreMachine,), {"make_place": staticmethod(make_place)})
