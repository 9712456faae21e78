"""What the JSONL tests share: opening a store, beginning a session, and looking at its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, EventStore, Record
from kipu.stores.jsonl import JsonlStore
from kipu.testing.fakes import FakeClock, FakeLiveness

TIME = "2027-01-15T08:00:00.000000Z"


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[JsonlStore]:
    """Give a store in `folder`/store, closed afterwards."""
    settings = {"clock": FakeClock(), "liveness": FakeLiveness(), **settings}
    store = await JsonlStore.open(folder / "store", **settings)
    try:
        yield store
    finally:
        await store.close()


def record(text: str = "hello", *, event_type: str = "user_message", **fields: Any) -> Record:
    """Return a record whose body holds `text`."""
    fields.setdefault("event_id", f"id-{text[:40]}")
    return Record(event_type=event_type, timestamp=TIME, body=orjson.dumps({"content": text}), **fields)


async def begin(store: EventStore, session_id: str = "one", **fields: Any) -> Appended:
    """Make a session."""
    patch = HeadPatch(set={"created_at": TIME, "last_activity_at": TIME, **fields})
    return await store.append(session_id, [record("begin", event_type="session_init")], head=patch)


async def fill(store: EventStore, count: int, session_id: str = "one") -> None:
    """Append messages "1" … "count", each by itself."""
    for number in range(1, count + 1):
        await store.append(session_id, [record(str(number))])


async def texts(store: EventStore, session_id: str = "one", **window: Any) -> list[str]:
    """Return the texts of a session's events."""
    return [orjson.loads(event.record.body)["content"] for event in await store.read(session_id, **window)]


def log_of(folder: Path, session_id: str = "one", segment: int = 1) -> Path:
    """Return the path of a segment."""
    return folder / "store" / session_id / f"{segment:06d}.jsonl"
