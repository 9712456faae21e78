"""A store in memory: the contract in its plainest form, for tests and for what nobody wants kept."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from kipu.errors import (
    BlobNotFoundError,
    ConflictError,
    InvalidQueryError,
    LeaseLostError,
    SessionNotFoundError,
    StoreClosedError,
)
from kipu.ports.clock import Clock
from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch, apply_patch, head_from_json
from kipu.ports.owner import Liveness
from kipu.ports.store import (
    IDEMPOTENCY_RETENTION_S,
    MAX_PAGE,
    Appended,
    Binding,
    Damage,
    ErasureReceipt,
    Hit,
    IndexEntry,
    Lease,
    Outcome,
    Page,
    Phrase,
    Record,
    SearchQuery,
    SessionQuery,
    StoreDescription,
    StoredEvent,
)
from kipu.stores.admission import AppendRequest, admit, check_adopted, ends_sharing, lease_is_live, taken_over
from kipu.stores.follow import Announcer, FollowPage, follow_pages, session_page
from kipu.stores.leasing import claimed, holds, released, renewed
from kipu.stores.memory_mark import MarkInMemory
from kipu.stores.offloading import check_reload, let_go, refuse_archived, taken_back
from kipu.stores.paging import check_order, decode_cursor, encode_cursor, page_size
from kipu.stores.same_value import same_value
from kipu.stores.times import iso_from_us

URL = "memory://"


@dataclass(slots=True)
class _Session:
    row: dict[str, Any]
    events: list[StoredEvent] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # where each event stands among all commits
    blobs: dict[str, bytes] = field(default_factory=dict)
    terms: dict[int, tuple[str, ...]] = field(default_factory=dict)
    returning: dict[int, StoredEvent] = field(default_factory=dict)  # on their way back from an archive
    adopted: list[StoredEvent] = field(default_factory=list)  # shared events, out of sight until they are own


class MemoryStore(MarkInMemory):
    """Keep sessions in this process and nowhere else. No call waits, so none can be cut in the middle."""

    def __init__(self, *, clock: Clock, liveness: Liveness) -> None:
        self._clock = clock
        self._liveness = liveness
        self._sessions: dict[str, _Session] = {}
        self._erased: dict[str, str] = {}
        self._bindings: dict[str, str] = {}
        self._outcomes: dict[str, tuple[Appended, int]] = {}
        self._commits: list[StoredEvent | None] = []
        self._lowest = 0  # below it stand no adopted events yet, which are older than every commit
        self._announcer = Announcer(URL)
        self._url = URL
        self._closed = False

    @classmethod
    async def open(cls, *, clock: Clock, liveness: Liveness) -> MemoryStore:
        """Return an empty store."""
        return cls(clock=clock, liveness=liveness)

    def describe(self) -> StoreDescription:
        """Return what this store is."""
        return StoreDescription(
            url=URL, kind="memory", durability="none", loss_window="everything, when the process ends", search=True
        )

    async def append(
        self,
        session_id: str,
        records: Sequence[Record],
        *,
        head: HeadPatch = EMPTY_PATCH,
        bind: Binding | None = None,
        token: int | None = None,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append `records` as one batch, or nothing of it."""
        self._check_mark()
        request = AppendRequest(session_id, records, head, bind, token, expected_seq, idempotency_key)
        now_us = self._clock.now_us()
        known = self._known_outcome(idempotency_key, now_us)
        if known is not None:
            return known._replace(duplicate=True)
        session = self._sessions.get(session_id)
        before = admit(
            request,
            session.row if session else None,
            erased=session_id in self._erased,
            bound_to=self._bindings.get(bind.key) if bind else None,
            adopted_seq=len(session.adopted) if session else 0,
            now_us=now_us,
            liveness=self._liveness,
        )
        appended = self._write(request, before)
        if idempotency_key is not None:
            self._outcomes[idempotency_key] = (appended, now_us)
        self._announcer.announce({record.event_type for record in records})
        return appended

    def _known_outcome(self, key: str | None, now_us: int) -> Appended | None:
        outcome, at_us = self._outcomes.get(key, (None, 0)) if key is not None else (None, 0)
        return outcome if now_us - at_us < IDEMPOTENCY_RETENTION_S * 1_000_000 else None

    def _write(self, request: AppendRequest, before: Mapping[str, Any]) -> Appended:
        first = before["last_seq"] + 1
        records = request.records
        row = apply_patch(
            before,
            request.head,
            first_seq=first,
            timestamps=[record.timestamp for record in records],
            tokens=sum(record.tokens for record in records),
        )
        session = self._sessions.setdefault(request.session_id, _Session(row))
        if ends_sharing(request) and session.adopted:
            row = taken_over(row, [event.record.tokens for event in session.adopted])
            self._take_over(session)
        session.row = row
        for seq, record in enumerate(records, first):
            event = StoredEvent(seq, request.session_id, record._replace(urgent=False))
            session.events.append(event)
            session.places.append(len(self._commits))
            self._commits.append(event)
        if request.bind is not None:
            self._bindings[request.bind.key] = request.session_id
        return Appended(request.session_id, first, first + len(records) - 1)

    def _take_over(self, session: _Session) -> None:
        """Put the adopted events before the session's own; followers of every session have no news of them."""
        session.events[:0] = session.adopted
        count = len(session.adopted)
        self._lowest -= count
        session.places[:0] = range(self._lowest, self._lowest + count)
        session.adopted = []

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return at most `limit` own events with after < seq <= until: the first ones, or the last, newest first."""
        session = self._session(session_id)
        page_size(limit)
        refuse_archived(session.row, after=after, until=until, limit=limit, backwards=backwards)
        base = max(session.row["base_seq"], session.row.get("offloaded_seq", 0))
        start = max(after - base, 0)
        end = len(session.events) if until is None else max(min(until - base, len(session.events)), start)
        if backwards:
            return session.events[max(start, end - limit) : end][::-1]
        return session.events[start : min(end, start + limit)]

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return the session's batches that have a key within its retention, in order."""
        self._session(session_id)
        now_us = self._clock.now_us()
        known = [(key, self._known_outcome(key, now_us)) for key in self._outcomes]
        mine = [Outcome(key, at.first_seq, at.last_seq) for key, at in known if at and at.session_id == session_id]
        return sorted(mine, key=lambda outcome: outcome.first_seq)

    async def head(self, session_id: str) -> Head | None:
        """Return the head, or None where there is no such session."""
        self._check_open()
        session = self._sessions.get(session_id)
        return head_from_json(session.row) if session else None

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads."""
        self._check_open()
        check_order(query)
        limit = page_size(query.limit)

        def place(row: Mapping[str, Any]) -> tuple[str, str]:
            return row.get(query.order, ""), row["session_id"]

        rows = [session.row for session in self._sessions.values() if row_matches(session.row, query)]
        rows.sort(key=place, reverse=query.descending)
        if query.cursor is not None:
            left_off = decode_cursor(query.cursor, str, str)
            rows = [row for row in rows if (place(row) < left_off if query.descending else place(row) > left_off)]
        page = rows[:limit]
        cursor = encode_cursor(*place(page[-1])) if len(rows) > limit else None
        return Page(tuple(head_from_json(row) for row in page), cursor)

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Take in terms and move `indexed_seq` of the named sessions."""
        self._check_open()
        for entry in entries:
            session = self._sessions.get(entry.session_id)
            if session is not None:
                session.terms[entry.seq] = entry.terms
        for session_id, seq in indexed.items():
            session = self._sessions.get(session_id)
            if session is not None:
                session.row = {**session.row, "indexed_seq": max(seq, session.row.get("indexed_seq", 0))}

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Return events that hold every phrase, newest first."""
        self._check_open()
        if not query.phrases or not all(phrase.terms for phrase in query.phrases):
            raise InvalidQueryError(reason="it has no words to look for")
        limit = page_size(query.limit)
        below = decode_cursor(query.cursor, int)[0] if query.cursor is not None else len(self._commits)
        found = [place for session in self._sessions.values() for place in self._found(session, query, below)]
        found.sort(reverse=True)
        page = found[:limit]
        cursor = encode_cursor(page[-1][0]) if len(found) > limit else None
        return Page(tuple(hit for _, hit in page), cursor)

    def _found(self, session: _Session, query: SearchQuery, below: int) -> builtins.list[tuple[int, Hit]]:
        row, base = session.row, session.row["base_seq"]
        if query.session_id not in {None, row["session_id"]}:
            return []
        narrowed = SessionQuery(
            tenant=query.tenant, owner=query.owner, visible_to=query.visible_to, statuses=query.statuses
        )
        if not row_matches(row, narrowed):
            return []
        return [
            (place, Hit(row["session_id"], seq))
            for seq, terms in session.terms.items()
            if base < seq <= row["last_seq"]
            and (place := session.places[seq - base - 1]) < below
            and all(phrase_in(terms, phrase) for phrase in query.phrases)
        ]

    async def drop_index(self) -> None:
        """Forget every term and set every `indexed_seq` to 0."""
        self._check_open()
        for session in self._sessions.values():
            session.terms.clear()
            session.row = {**session.row, "indexed_seq": 0}

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id` if it now leads to `expected`."""
        self._check_mark()
        self._session(session_id)
        actual = self._bindings.get(key)
        if actual != expected:
            raise ConflictError(session_id=key, expected=expected, actual=actual)
        self._bindings[key] = session_id

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        self._check_open()
        return self._bindings.get(key)

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session."""
        self._session(session_id)
        return sorted(key for key, bound in self._bindings.items() if bound == session_id)

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live."""
        self._check_mark(claims=True)
        session = self._session(session_id)
        now_us = self._clock.now_us()
        outcome = claimed(session.row, owner=owner, ttl_s=ttl_s, now_us=now_us, liveness=self._liveness)
        if outcome is None:
            return None
        session.row, lease = outcome
        return lease

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry."""
        self._check_mark()
        session = self._sessions.get(lease.session_id)
        if session is None:
            raise LeaseLostError(session_id=lease.session_id, token=lease.token, current=None)
        session.row, fresh = renewed(session.row, lease, now_us=self._clock.now_us())
        return fresh

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back; False, still holding it, if something arrived since `expected_seq`."""
        self._check_open()
        session = self._sessions.get(lease.session_id)
        outcome = released(session.row, lease, expected_seq=expected_seq) if session else True
        if session is None or isinstance(outcome, bool):
            return bool(outcome)
        session.row = outcome
        return True

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work that is due and without a live lease, those due longest first."""
        self._check_open()
        due = [
            session.row
            for session in self._sessions.values()
            if (at := session.row.get("due_at")) is not None
            and at <= now
            and not lease_is_live(session.row, now=now, liveness=self._liveness)
        ]
        due.sort(key=lambda row: (row["due_at"], row["last_event_at"], row["session_id"]))
        return [head_from_json(row) for row in due[: page_size(limit)]]

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one; without a session, all from now on."""
        self._check_open()
        if session_id is None:
            return follow_pages(self._commits_after, self._announcer, after=len(self._commits), types=types)
        return follow_pages(self._events_after(session_id), self._announcer, after=after, types=types)

    async def _commits_after(self, place: int) -> FollowPage[int]:
        self._check_open()
        end = min(place + MAX_PAGE, len(self._commits))
        events = [event for event in self._commits[place:end] if event is not None]
        return FollowPage(events, end, end < len(self._commits))

    def _events_after(self, session_id: str) -> Callable[[int], Any]:
        async def read_page(place: int) -> FollowPage[int]:
            return session_page(await self.read(session_id, after=place), after=place, limit=MAX_PAGE)

        return read_page

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` and return its digest."""
        self._check_mark()
        session = self._session(session_id)
        digest = hashlib.sha256(data).hexdigest()
        session.blobs[digest] = bytes(data)
        return digest

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes."""
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None or digest not in session.blobs:
            raise BlobNotFoundError(session_id=session_id, digest=digest)
        return session.blobs[digest]

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the session's own blobs."""
        return sorted(self._session(session_id).blobs)

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Take in shared events, out of sight for now."""
        self._check_mark()
        session = self._session(session_id)
        if not holds(session.row, lease):
            raise LeaseLostError(session_id=session_id, token=lease.token, current=session.row.get("lease_token", 0))
        end = len(session.adopted)
        if records:
            check_adopted(session.row, len(records), after=after, end=end)
            for seq, record in enumerate(records[end - after :], end + 1):
                session.adopted.append(StoredEvent(seq, session_id, record._replace(urgent=False)))
        return len(session.adopted)

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of the session's events and of these blobs."""
        self._check_mark()
        session = self._session(session_id)
        session.row = let_go(session.row, lease, until=until, archive=archive)
        session.events = []
        for place in session.places:
            if place >= 0:
                self._commits[place] = None
        for digest in blobs:
            session.blobs.pop(digest, None)

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent] = (),
        *,
        lease: Lease,
        complete: bool = False,
        archive: Mapping[str, Any] | None = None,
    ) -> None:
        """Take events back, out of sight until it is `complete`."""
        self._check_mark()
        session = self._session(session_id)
        check_reload(session.row, lease, events=events)
        session.returning.update({event.seq: event for event in events})
        if complete:
            session.events[:0] = [session.returning[seq] for seq in sorted(session.returning)]
            session.returning = {}
            session.row = taken_back(session.row, archive=archive)

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove everything of the session and leave a tombstone."""
        self._check_mark()
        session = self._session(session_id)
        if not holds(session.row, lease):
            raise LeaseLostError(session_id=session_id, token=lease.token, current=session.row.get("lease_token", 0))
        keys = [key for key, target in self._bindings.items() if target == session_id]
        outcomes = [key for key, (outcome, _) in self._outcomes.items() if outcome.session_id == session_id]
        for key in keys:
            del self._bindings[key]
        for key in outcomes:
            del self._outcomes[key]
        for place in session.places:
            if place >= 0:
                self._commits[place] = None
        del self._sessions[session_id]
        self._erased[session_id] = iso_from_us(self._clock.now_us())
        counts = (len(session.events), len(session.terms), len(session.blobs), len(keys), len(outcomes), 1)
        names = ("events", "search", "blobs", "bindings", "idempotency_keys", "heads")
        self._announcer.announce()
        return ErasureReceipt(session_id, self._erased[session_id], dict(zip(names, counts, strict=True)))

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return nothing: memory is not read back from a medium."""
        self._check_open()
        if session_id is not None:
            self._session(session_id)
        return []

    async def close(self) -> None:
        """End every follower and forget everything."""
        if not self._closed:
            self._closed = True
            self._announcer.close()

    def _ids(self) -> Container[str]:
        return self._sessions

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(store=URL)

    def _session(self, session_id: str) -> _Session:
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFoundError(session_id=session_id)
        return session


def phrase_in(terms: Sequence[str], phrase: Phrase) -> bool:
    """Return whether the phrase's terms follow one another in `terms`."""
    wanted = phrase.terms
    for start in range(len(terms) - len(wanted) + 1):
        found = terms[start : start + len(wanted)]
        if found[:-1] == wanted[:-1] and (
            found[-1].startswith(wanted[-1]) if phrase.prefix else found[-1] == wanted[-1]
        ):
            return True
    return False


def row_matches(row: Mapping[str, Any], query: SessionQuery) -> bool:
    """Return whether a head row meets every condition of `query`."""
    key = row.get("key")
    created, active = row.get("created_at", ""), row.get("last_activity_at", "")
    metadata = row.get("metadata") or {}
    return (
        query.tenant in {None, row.get("tenant", "")}
        and query.owner in {None, row.get("owner", "")}
        and (query.visible_to in {None, row.get("owner", "")} or query.visible_to in (row.get("members") or ()))
        and (query.statuses is None or row.get("status", "active") in query.statuses)
        and query.tags <= set(row.get("tags", ()))
        and all(same_value(metadata.get(name), value) for name, value in query.metadata.items())
        and query.key in {None, key}
        and (query.key_prefix is None or (key or "").startswith(query.key_prefix))
        and query.forked_from in {None, row.get("forked_from")}
        and query.pinned in {None, row.get("pinned", False)}
        and (query.created_after is None or created > query.created_after)
        and (query.created_before is None or created < query.created_before)
        and (query.active_after is None or active > query.active_after)
        and (query.active_before is None or active < query.active_before)
        and query.open_turn in {None, bool(row.get("open_turn"))}
        and not (query.unindexed and row.get("indexed_seq", 0) >= row["last_seq"])
    )
