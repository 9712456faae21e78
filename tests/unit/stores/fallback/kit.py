"""What the fallback tests share: a primary that refuses when told to, and the pair around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from kipu.errors import StoreFullError, StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, Lease, Record
from kipu.stores.fallback import FallbackStore
from kipu.stores.jsonl import JsonlStore
from kipu.stores.sqlite import SqliteStore
from kipu.stores.wrapper import WrappedStore
from kipu.testing.fakes import FakeClock, FakeLiveness

TIME = "2027-01-15T08:00:00.000000Z"


class Refusing(WrappedStore):
    """A store whose writes can be refused: always, or after so many more appends."""

    def __init__(self, inner: EventStore) -> None:
        super().__init__(inner)
        self.refuses = False
        self.appends_left: int | None = None

    def _ask(self) -> None:
        if self.refuses:
            raise StoreFullError(store="primary", reason="ordered")

    async def append(self, session_id: str, records: Any, **options: Any) -> Appended:
        """Append unless it is told to refuse."""
        self._ask()
        if self.appends_left is not None:
            if self.appends_left == 0:
                raise StoreUnavailableError(store="primary", reason="ordered")
            self.appends_left -= 1
        return await super().append(session_id, records, **options)

    async def claim(self, session_id: str, *, owner: str, ttl_s: float) -> Lease | None:
        """Claim unless it is told to refuse."""
        self._ask()
        return await super().claim(session_id, owner=owner, ttl_s=ttl_s)

    async def renew(self, lease: Lease) -> Lease:
        """Renew unless it is told to refuse."""
        self._ask()
        return await super().renew(lease)

    async def release(self, lease: Lease, *, expected_seq: int | None = None) -> bool:
        """Release unless it is told to refuse."""
        self._ask()
        return await super().release(lease, expected_seq=expected_seq)

    async def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep a blob unless it is told to refuse."""
        self._ask()
        return await super().put_blob(session_id, data)


@asynccontextmanager
async def pair(folder: Path, clock: FakeClock | None = None) -> AsyncIterator[tuple[FallbackStore, Refusing]]:
    """Give a pair over `folder`, and its primary."""
    clock, liveness = clock or FakeClock(), FakeLiveness()
    spool = await JsonlStore.open(folder / "spool", clock=clock, liveness=liveness)
    primary = Refusing(await SqliteStore.open(folder / "primary.db", clock=clock, liveness=liveness))

    async def there() -> EventStore:
        return primary

    store = await FallbackStore.open(there, spool=spool, clock=clock)
    try:
        yield store, primary
    finally:
        await store.close()


def record(text: str, event_type: str = "user_message") -> Record:
    """Return a record whose body holds `text`, with an id of its own."""
    return Record(f"id-{text}", event_type, TIME, orjson.dumps({"content": text}))


async def begin(store: EventStore, session_id: str = "one", **fields: Any) -> Appended:
    """Make a session."""
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, "owner": "me", **fields})
    return await store.append(session_id, [record(f"begin {session_id}", "session_init")], head=patch)


async def begin_turn(store: EventStore) -> Lease:
    """Make a session, and claim it as a turn does."""
    await begin(store)
    lease = await store.claim("one", owner="a", ttl_s=30)
    assert lease is not None
    return lease


async def log(store: EventStore, session_id: str = "one") -> list[tuple[int, str]]:
    """Return seq and text of every event."""
    return [(event.seq, orjson.loads(event.record.body)["content"]) for event in await store.read(session_id)]
