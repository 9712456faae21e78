"""Following all sessions of a database, though no number orders their commits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from kipu.ports.store import StoredEvent
from kipu.stores.event_row import row_of
from kipu.stores.postgres import following
from kipu.stores.postgres.address import DEFAULT_TIMEOUT_S, Address
from kipu.stores.postgres.store import PostgresStore
from tests.acceptance.postgres.kit import begin, opened, raw, record, text_of
from tests.servers import fresh_schema, postgres_url


@pytest.fixture(autouse=True)
def short_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look back one second only, so that what took longer is soon behind it; statements have the time that a slow machine takes."""
    monkeypatch.setattr(following, "MARGIN_S", 1.0 - DEFAULT_TIMEOUT_S)


class Follower:
    """Everything that one follower of all sessions was given."""

    def __init__(self, events: AsyncIterator[StoredEvent]) -> None:
        self.found: list[StoredEvent] = []
        self._events = events
        self._came = asyncio.Event()
        self._task = asyncio.ensure_future(self._take())

    async def _take(self) -> None:
        try:
            async for event in self._events:
                self.found.append(event)
                self._came.set()
        finally:
            self._came.set()

    async def until(self, is_it: Callable[[StoredEvent], bool]) -> None:
        """Return when such an event has come; raise what ended the following before."""
        async with asyncio.timeout(60):
            while not any(map(is_it, self.found)):
                if self._task.done():
                    await self._task
                self._came.clear()
                await self._came.wait()

    def of(self, session_id: str) -> list[StoredEvent]:
        """Return what came of a session."""
        return [event for event in self.found if event.session_id == session_id]

    async def end(self) -> None:
        """Stop following."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def chatter(store: PostgresStore, *, for_s: float) -> None:
    """Append to a session of its own for a while, so that followers look again and again."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        await store.append("chatter", [record("chatter")])


async def test_transaction_that_ends_late_is_no_news_missed() -> None:
    """What a transaction began to write long ago and commits now reaches whoever follows everything, once (C1, PG-15)."""
    url = fresh_schema(postgres_url())
    schema = Address.parse(url).schema
    async with opened(url) as store, opened(url) as other:
        await begin(store, "chatter")
        await begin(store, "slow")
        follower = Follower(other.follow())
        async with await raw(url) as connection, connection.transaction():
            # As an append does it, but for the time that it takes.
            row = row_of("slow", record("slow"), seq=2)
            marks = ", ".join(["%s"] * len(row))
            await connection.execute(
                f'WITH head AS (UPDATE "{schema}".heads SET version = version + 1, last_seq = 2,'
                " data = replace(data, '\"last_seq\":1', '\"last_seq\":2'), changed_at = greatest(changed_at, now())"
                " WHERE session_id = 'slow' RETURNING session_id, changed_at)"
                f' INSERT INTO "{schema}".events SELECT session_id, {marks}, changed_at FROM head'.encode(),
                row,
            )
            await chatter(store, for_s=2.5)
        await store.append("chatter", [record("last")])
        await follower.until(lambda event: text_of(event) == "last")
        await follower.until(lambda event: event.session_id == "slow")
        assert [event.seq for event in follower.of("slow")] == [2]
        keys = [(event.session_id, event.seq) for event in follower.found]
        assert len(keys) == len(set(keys))
        await follower.end()


async def test_quiet_session_is_heard_of_once_and_from_its_end() -> None:
    """A long session that was quiet beyond what is remembered gives only its new events, however many at once (C1, PG-15)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as store, opened(url) as other:
        await begin(store, "chatter")
        await begin(store, "long")
        await store.append("long", [record("old") for _ in range(900)])
        await chatter(store, for_s=1.5)
        follower = Follower(other.follow())
        await chatter(store, for_s=2.5)  # by now nothing is remembered of the long one
        await store.append("long", [record(f"new {number}") for number in range(150)])
        await follower.until(lambda event: text_of(event) == "new 149")
        assert [text_of(event) for event in follower.of("long")] == [f"new {number}" for number in range(150)]
        assert await store.claim("long", owner="me", ttl_s=30) is not None  # a change without events is no news
        await chatter(store, for_s=0.3)
        assert len(follower.of("long")) == 150
        await follower.end()
