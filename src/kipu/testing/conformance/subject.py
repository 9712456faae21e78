"""What a requirement works with: a place, its clock, and short ways to say what is said often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from kipu.events.ids import event_id
from kipu.ports.clock import Clock
from kipu.ports.head import EMPTY_PATCH, HeadPatch, JsonObject, apply_patch
from kipu.ports.store import MAX_PAGE, Appended, EventStore, Lease, Record, StoredEvent
from kipu.testing.conformance.expectation import NotSupportedError, expect
from kipu.testing.conformance.place import Place
from kipu.testing.fakes import FakeClock, FakeLiveness, SeededEntropy

OWNER_A = "host-a/boot-1/101/1000/worker"
OWNER_B = "host-a/boot-1/202/2000/worker"
TURN_TYPE = "agent_message"


class Subject:
    """One place under test. Stores opened through it are closed when the requirement ends."""

    def __init__(self, place: Place, *, seed: int = 0) -> None:
        self.place = place
        self.clock = FakeClock()
        self.liveness = FakeLiveness()
        self._entropy = SeededEntropy(seed)
        self._opened: list[EventStore] = []

    async def open(self, *, clock: Clock | None = None) -> EventStore:
        """Open one more store at the place."""
        store = await self.place.open(clock=clock or self.clock, liveness=self.liveness)
        self._opened.append(store)
        return store

    async def close(self) -> None:
        """Close every store that was opened."""
        opened, self._opened = self._opened, []
        for store in opened:
            await store.close()

    async def reopen(self) -> EventStore:
        """Close what is open and open the place again."""
        await self.close()
        return await self.open()

    def need(self, capability: str) -> None:
        """Stop here, as not supported, where the place lacks `capability`."""
        capabilities = self.place.capabilities
        if not getattr(capabilities, capability):
            raise NotSupportedError(f"needs {capability}: {capabilities.reason}")

    def record(self, text: str = "hello", *, event_type: str = "user_message", **fields: Any) -> Record:
        """Return a record with a fresh id, the clock's time and `text` in its body."""
        fields.setdefault("event_id", event_id(self.clock.now_us() // 1000, self._entropy.random_bytes(10)))
        fields.setdefault("timestamp", self.clock.iso())
        fields.setdefault("body", orjson.dumps({"content": text}))
        return Record(event_type=event_type, **fields)

    def canary(self) -> str:
        """Return a text that cannot be compressed, guessed, or be anywhere by chance."""
        return self._entropy.random_bytes(24).hex()

    def first_patch(self, **fields: Any) -> HeadPatch:
        """Return the patch that begins a session at the clock's time."""
        now = self.clock.iso()
        fields = {"created_at": now, "last_activity_at": now, "status": "active", **fields}
        return HeadPatch(set=fields)

    async def begin(self, store: EventStore, session_id: str, **fields: Any) -> Appended:
        """Make a session with these head fields."""
        record = self.record("begin", event_type="session_init")
        return await store.append(session_id, [record], head=self.first_patch(**fields))

    async def say(self, store: EventStore, session_id: str, *, text: str = "hello", **options: Any) -> Appended:
        """Append one user message."""
        return await store.append(session_id, [self.record(text)], **options)

    async def claim(self, store: EventStore, session_id: str, *, owner: str = OWNER_A, ttl_s: float = 15) -> Lease:
        """Claim a lease that must be free."""
        lease = await store.claim(session_id, owner=owner, ttl_s=ttl_s)
        if lease is None:
            expect(lease, f"the free lease of {session_id} must be given to {owner}")
            raise AssertionError
        return lease


def text_of(event: StoredEvent) -> str:
    """Return the text that `Subject.record` put into the body."""
    return str(orjson.loads(event.record.body)["content"])


async def whole_log(store: EventStore, session_id: str) -> list[StoredEvent]:
    """Return every own event of a session, page by page."""
    events: list[StoredEvent] = []
    while True:
        after = events[-1].seq if events else 0
        page = await store.read(session_id, after=after, limit=MAX_PAGE)
        events.extend(page)
        if not page:
            return events


async def texts(store: EventStore, session_id: str) -> list[str]:
    """Return the texts of a whole log."""
    return [text_of(event) for event in await whole_log(store, session_id)]


async def state_of(store: EventStore, session_id: str) -> tuple[Any, ...]:
    """Return all that can be seen of a session, to compare before with after."""
    return (await store.head(session_id), await whole_log(store, session_id), await store.blobs(session_id))


@asynccontextmanager
async def unchanged(store: EventStore, session_id: str) -> AsyncIterator[None]:
    """Say that the block must change nothing of an existing session."""
    before = await state_of(store, session_id)
    yield
    expect(await state_of(store, session_id) == before, f"session {session_id} changed though the call was refused")


class HeadModel:
    """An independent account of what a head must be: the patches in their order."""

    def __init__(self, session_id: str) -> None:
        self.row: JsonObject = {"session_id": session_id}

    def append(self, records: Sequence[Record], *, patch: HeadPatch = EMPTY_PATCH, first_seq: int) -> None:
        """Take in one append."""
        self.row = apply_patch(
            self.row,
            patch,
            first_seq=first_seq,
            timestamps=[record.timestamp for record in records],
            tokens=sum(record.tokens for record in records),
        )
