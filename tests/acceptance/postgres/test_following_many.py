"""News of many sessions that were quiet for long, at one moment."""

from __future__ import annotations

import pytest

from kipu.stores.postgres import following
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.following import Everything
from tests.acceptance.postgres.kit import ask, begin, opened, record, text_of
from tests.servers import fresh_schema, postgres_url

SESSIONS = 30


async def test_news_of_many_quiet_sessions_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many sessions append after a long time is given once each, looked back for some sessions at a time (PG-15, C13)."""
    monkeypatch.setattr(following, "_QUIET_AT_A_TIME", 7)
    monkeypatch.setattr(following, "_FIRST_LOOK", 1)  # so that some have to be looked at again
    url = fresh_schema(postgres_url())
    schema = Address.parse(url).schema
    async with opened(url) as store:
        for number in range(SESSIONS):
            await begin(store, f"s{number:02}")
            await store.append(f"s{number:02}", [record("old") for _ in range(number % 5)] or [record("old")])
        await ask(url, f"UPDATE \"{schema}\".heads SET changed_at = now() - interval '1 hour'")
        await ask(url, f"UPDATE \"{schema}\".events SET at = now() - interval '1 hour'")
    async with opened(url) as store:  # it remembers no head
        everything = Everything(store._database, types=None)
        await everything.begin()
        for number in range(SESSIONS):
            for text in ("new", "newer")[: 1 + number % 2]:
                await store.append(f"s{number:02}", [record(text)])
        found = [event for _ in range(3) for event in (await everything.read_page(None)).events]
    assert sorted((event.session_id, text_of(event)) for event in found) == sorted(
        (f"s{number:02}", text) for number in range(SESSIONS) for text in ("new", "newer")[: 1 + number % 2]
    )
