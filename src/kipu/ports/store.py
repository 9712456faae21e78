"""The store contract: what every place that keeps sessions does, whatever it is made of."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from kipu.ports.head import EMPTY_PATCH, Head, HeadPatch

T = TypeVar("T")

# Arrivals, decisions and stop requests are the control lane: whoever may write them needs no lease (architecture §3).
LEASE_FREE_TYPES = frozenset(
    {
        "session_init",
        "user_message",
        "approval_decision",
        "stop_requested",
        "message_settled",
        "metadata_changed",
        "event_pinned",
        "delivery",
        "note",
        "key_bound",
        "members_changed",
        "access_denied",
    }
)

MAX_PAGE = 1_000
IDEMPOTENCY_RETENTION_S = 90 * 24 * 3600


class Record(NamedTuple):
    """One event as a store sees it: the envelope, and a body that it never looks into.

    `timestamp` is ISO 8601 UTC text with microseconds and `Z`. `body` is one JSON object in UTF-8 without line breaks.
    `tokens` is what the body costs in a window, counted once. `urgent` asks a buffering store to sync now (B53).
    """

    event_id: str
    event_type: str
    timestamp: str
    body: bytes
    tokens: int = 0
    turn_id: str | None = None
    trace_id: str | None = None
    principal: str | None = None
    v: int = 1
    urgent: bool = False


class StoredEvent(NamedTuple):
    """A record with the place the store gave it. `seq` alone orders a session (C1)."""

    seq: int
    session_id: str
    record: Record


class Binding(NamedTuple):
    """Make `key` lead to the session, if it now leads to `expected` (None: to nothing)."""

    key: str
    expected: str | None = None


class Appended(NamedTuple):
    """Where a batch stands. With `duplicate`, it stood there before, maybe in another session (C4)."""

    session_id: str
    first_seq: int
    last_seq: int
    duplicate: bool = False


class Outcome(NamedTuple):
    """Which batch stands under an idempotency key."""

    key: str
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to append turn events, until `expires_at` or until somebody claims with a higher token."""

    session_id: str
    owner: str
    token: int
    ttl_s: float
    expires_at: str


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Which heads to list. Every condition given must hold. `cursor` comes from the page before."""

    tenant: str | None = None
    owner: str | None = None
    visible_to: str | None = None  # only what this id owns or is a member of
    statuses: frozenset[str] | None = None
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    key_prefix: str | None = None
    forked_from: str | None = None
    pinned: bool | None = None
    created_after: str | None = None
    created_before: str | None = None
    active_after: str | None = None
    active_before: str | None = None
    unindexed: bool = False  # only sessions whose index lags behind their log
    open_turn: bool | None = None  # only sessions with, or without, an open turn
    order: str = "last_activity_at"  # or "created_at"
    descending: bool = True
    limit: int = 100
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The search terms of one event, in the order they stand, so that phrases can be found."""

    session_id: str
    seq: int
    terms: tuple[str, ...]


class Phrase(NamedTuple):
    """Terms that must follow one another; with `prefix`, the last may go on."""

    terms: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Events that contain every phrase, newest first."""

    phrases: tuple[Phrase, ...]
    tenant: str | None = None
    owner: str | None = None
    visible_to: str | None = None  # only in what this id owns or is a member of
    session_id: str | None = None
    statuses: frozenset[str] | None = None
    limit: int = 50
    cursor: str | None = None


class Hit(NamedTuple):
    """One event that a search found."""

    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items and, where there are more, the cursor that leads on."""

    items: tuple[T, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in the store that cannot be read as it should. Nothing of it was deleted."""

    session_id: str | None
    reason: str  # stable word: torn, checksum, json, gap, order, duplicate, page, missing_blob, foreign, unreadable
    where: str  # file or table, relative to the store
    offset: int | None = None
    length: int | None = None
    seq: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What an erasure removed, place by place (counts of rows, files or bytes)."""

    session_id: str
    erased_at: str
    removed: Mapping[str, int]


class Tombstone(NamedTuple):
    """An id that was used and erased, and when: it is never used again (C20)."""

    session_id: str
    erased_at: str


MarkState = Literal["filling", "leaving", "closed", "moved"]


@dataclass(frozen=True, slots=True)
class StoreMark:
    """What a store says of itself while its sessions move between it and another one.

    `filling`: it takes in another store's sessions and is nobody's to write but who fills it. `leaving`: its sessions are about
    to go; no lease is given any more. `closed`: nothing is written any more. `moved`: and never will be, they are in `other`.
    """

    state: MarkState
    move: str  # id of the move, the same at both ends
    other: str  # the store at the other end, without a password
    holder: str = ""  # the process that does it (`ports.owner`)
    since: str = ""


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """What a store is and what it promises."""

    url: str
    kind: str
    durability: str
    loss_window: str  # what a power cut may take of what was acknowledged, in words
    search: bool
    read_only: bool = False
    notes: tuple[str, ...] = ()


class EventStore(Protocol):
    """Keep sessions: an append-only log and a head for each, bindings, leases, blobs and a search index.

    Contract:
    - `append` is atomic, durable on return at the stated level, and gives gapless `seq` from `base_seq + 1` (C1, C2).
    - It applies `head` and `bind` in the same transaction. It refuses, with nothing changed: a `token` that is not the
      session's newest (C3), an `expected_seq` that is not its `last_seq`, a binding that is not where `bind` expects it, a
      batch with lease-needing types and no token while somebody's lease is live, `session_init` for an id that exists or was
      erased, and anything else for an id that does not exist (B24).
    - A patch that sets `base_seq` for a session there is makes the events that `adopt` took in its own, in the same
      transaction; it is refused (ConflictError) while they do not reach up to the base. `session_init` for an id that exists
      is refused but under the session's lease: a fork's own beginning stands behind the events that it took over.
    - A known `idempotency_key` returns the first outcome, in whichever session it was, and appends nothing (C2, C4). Equal
      content under another key is another event.
    - `outcomes` and `keys` tell what of a session is in no event, so that a copy of it answers retries and keys as it does (C22).
    - A cancelled `append` has either happened whole, and then returns normally with the cancellation delivered at the next
      await, or not at all.
    - What cannot be read is an error or a reported damage, never "no session" (A50), never deleted (C16).
    - Events that `offload` let go of are in nobody's sight: whoever reads into them gets SessionArchivedError, never a gap and
      never an empty page (B48). Appends, leases, lists, keys, retries and searches do not change by it.
    - Bodies, blobs and terms are opaque. Stores know nothing of principals or models.
    - What a mark forbids is refused in the same transaction that would do it, in every process: once `set_mark` has returned, it
      does not happen any more (C22).

    Raises everywhere: StoreUnavailableError, StoreFullError, StoreReadOnlyError, StoreCorruptError, StoreClosedError.
    """

    def describe(self) -> StoreDescription:
        """Return what this store is."""
        ...

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
        """Append `records` as one batch.

        Raises: SessionNotFoundError, SessionExistsError, SessionErasedError, LeaseLostError, LeaseRequiredError, ConflictError.
        """
        ...

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = MAX_PAGE,
        backwards: bool = False,
    ) -> list[StoredEvent]:
        """Return at most `limit` own events with after < seq <= until: the first ones, or with `backwards` the last ones.

        With `backwards` the newest comes first. The cost does not grow with the length of the log (B6).
        Raises: SessionNotFoundError, SessionArchivedError (one of them was offloaded).
        """
        ...

    async def outcomes(self, session_id: str) -> builtins.list[Outcome]:
        """Return the session's batches that have an idempotency key within its retention, ordered by `first_seq`.

        Raises: SessionNotFoundError.
        """
        ...

    async def head(self, session_id: str) -> Head | None:
        """Return the head, or None where there is no such session (erased ones included)."""
        ...

    async def list(self, query: SessionQuery) -> Page[Head]:
        """Return a page of heads; a page costs the same however deep it is (keyset), and whoever it is visible to."""
        ...

    async def index(self, entries: Sequence[IndexEntry], *, indexed: Mapping[str, int]) -> None:
        """Take in terms and move `indexed_seq` of the named sessions, together. Taking the same entry twice is harmless."""
        ...

    async def search(self, query: SearchQuery) -> Page[Hit]:
        """Return events that hold every phrase, newest first. Only what was indexed is found."""
        ...

    async def drop_index(self) -> None:
        """Forget every term and set every `indexed_seq` to 0, so that the index is built anew."""
        ...

    async def bind(self, key: str, session_id: str, *, expected: str | None = None) -> None:
        """Make `key` lead to `session_id` if it now leads to `expected` (None: to nothing).

        Raises: ConflictError, SessionNotFoundError.
        """
        ...

    async def resolve(self, key: str) -> str | None:
        """Return the session id that `key` leads to."""
        ...

    async def keys(self, session_id: str) -> builtins.list[str]:
        """Return the keys that now lead to the session, sorted. Raises: SessionNotFoundError."""
        ...

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Return a lease with the next token, or None while another owner's is live.

        A lease is over when released, expired, or held by a process of this host that is dead (`ports.owner`). The same owner
        claiming again gets a new token, and its old one is stale.
        Raises: SessionNotFoundError.
        """
        ...

    async def renew(self, lease: Lease) -> Lease:
        """Return the lease with a later expiry. Raises: LeaseLostError."""
        ...

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Give the lease back. Return False, still holding it, if `expected_seq` is given and something arrived since.

        A lease that was lost is not an error here: there is nothing left to give back, and True is returned.
        """
        ...

    async def runnable(self, *, now: str, limit: int) -> builtins.list[Head]:
        """Return sessions with work that is due and without a live lease, those due longest first."""
        ...

    def follow(
        self, session_id: str | None = None, *, after: int = 0, types: AbstractSet[str] | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield own events with seq > `after`, then every new one as it is committed, from any process; skip none.

        Without a session id: every event of every session committed from now on, in order within each session.
        With `types`: events of these types only; commits of this process without one wake nobody.
        New events of other processes are seen within 50 ms.
        """
        ...

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep `data` durably and return its digest (SHA-256, hex). Keeping the same twice is harmless."""
        ...

    async def get_blob(self, session_id: str, digest: str) -> bytes:
        """Return the bytes. Raises: BlobNotFoundError."""
        ...

    async def blobs(self, session_id: str) -> builtins.list[str]:
        """Return the digests of the session's own blobs."""
        ...

    async def adopt(self, session_id: str, records: Sequence[Record] = (), *, after: int = 0, lease: Lease) -> int:
        """Take in copies of the events that a fork shares with its parents, as those after `after`; return the last one's seq.

        They are out of sight until `append` is given a patch that sets `base_seq` to 0: from then on they are own events
        like the rest, are counted, and wait to be indexed. Taking in what is there already is harmless, so that a killed
        copy goes on where it was; without records it tells where that is. Raises: SessionNotFoundError, LeaseLostError,
        ConflictError (they would leave a gap, or go beyond the session's `base_seq`).
        """
        ...

    async def offload(
        self, session_id: str, *, until: int, blobs: Sequence[str], archive: Mapping[str, Any], lease: Lease
    ) -> None:
        """Let go of every own event, the last being `until`, and of these blobs; the head keeps `archive` and `offloaded_seq`.

        Wrappers hand it through as it is: an archive is written and read below them, so that what is sealed stays sealed.
        All or nothing: killed in the middle, the session is as it was, or as it should be. Whoever calls has read the archive
        back. Raises: SessionNotFoundError, LeaseLostError, ConflictError (something arrived since, or it is let go of already).
        """
        ...

    async def reload(
        self,
        session_id: str,
        events: Sequence[StoredEvent] = (),
        *,
        lease: Lease,
        complete: bool = False,
        archive: Mapping[str, Any] | None = None,
    ) -> None:
        """Take events back under their own numbers; with `complete` they are in sight again, and the head says `archive`.

        They come in rising order, in as many calls as it takes; taking one twice is harmless, so that a killed caller begins
        anew. Nothing that arrived meanwhile is touched, and nobody who follows every session has news of them. Blobs come back
        by `put_blob`. Raises: SessionNotFoundError, LeaseLostError, ConflictError (an event that was not let go of).
        """
        ...

    async def erase(self, session_id: str, *, lease: Lease) -> ErasureReceipt:
        """Remove every byte of the session and leave a tombstone, so that the id is not used again (C20).

        Killed in the middle it goes on when called again. Raises: SessionNotFoundError, LeaseLostError.
        """
        ...

    async def mark(self) -> StoreMark | None:
        """Return the store's mark, or None where its sessions do not move."""
        ...

    async def set_mark(self, mark: StoreMark | None, *, expected: StoreMark | None = None) -> None:
        """Let the store have this mark if it now has `expected`; durable on return, as is everything the mark lets be.

        With `leaving`, `claim` is refused. With `closed` and `moved`, so is everything that changes a session, a key or a blob, but
        for `release` and what is about the index: what is read from then on stays as it is. With `filling` all of
        it is refused to every store object but the one that set it. The refusals are StoreMovedError and StoreBeingFilledError.
        Raises: ConflictError.
        """
        ...

    async def tombstones(self, *, after: str = "", limit: int = MAX_PAGE) -> builtins.list[Tombstone]:
        """Return at most `limit` ids that were erased, those behind `after`, sorted."""
        ...

    async def bury(self, tombstones: Sequence[Tombstone]) -> None:
        """Make these ids ones that are not used again. Ids that there are sessions of, and those erased already, stay as they are."""
        ...

    async def verify(self, session_id: str | None = None) -> builtins.list[Damage]:
        """Return what is damaged in one session, or in the whole store."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and close every handle. Closing twice is harmless."""
        ...
