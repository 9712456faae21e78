"""What PostgreSQL adds of its own: notices between machines, and an index whose limits lose nothing."""

from __future__ import annotations

import asyncio

from kipu.ports.store import IndexEntry, Phrase, SearchQuery
from kipu.stores.postgres.address import Address
from tests.acceptance.postgres.kit import ask, begin, opened, raw, record, text_of
from tests.servers import fresh_schema, postgres_url


async def test_notices_name_types_and_losing_them_costs_a_moment() -> None:
    """A commit is told on the channel by its types; followers whose listening line was ended see it all the same (C1, PG-18)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as one, opened(url) as two, await raw(url) as listening:
        assert one.describe().notes == ()
        await listening.execute(f'LISTEN "{Address.parse(url).channel}"'.encode())
        await begin(one, "s")
        heard = [notice.payload async for notice in listening.notifies(timeout=60, stop_after=1)]
        assert heard == ["session_init"]
        events = two.follow("s", after=1)
        waiting = asyncio.ensure_future(anext(events))
        await ask(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"kipu_t_%'")
        await one.append("s", [record("unheard")])
        async with asyncio.timeout(60):
            assert text_of(await waiting) == "unheard"


async def test_search_finds_what_the_index_itself_cannot_hold() -> None:
    """A term beyond 256 places, one of 300 letters, and a phrase among 60 000 terms are found, and no false phrase (PG-19)."""
    long_term = "x" * 300
    many = [f"t{number}" for number in range(60_000)]
    terms = (*["again"] * 400, "after", *many, long_term, "the", "end")
    async with opened(fresh_schema(postgres_url())) as store:
        await begin(store, "s")
        await store.append("s", [record("long")])
        await store.index([IndexEntry("s", 2, terms)], indexed={"s": 2})

        async def hits(*words: str, prefix: bool = False) -> int:
            found = await store.search(SearchQuery(phrases=(Phrase(words, prefix=prefix),)))
            return len(found.items)

        assert await hits("again", "after", "t0") == 1
        assert await hits(long_term, "the", "end") == 1
        assert await hits("t4321", "t4322", "t432", prefix=True) == 1
        assert await hits("x" * 299) == 0
        assert await hits("after", "again") == 0
        await store.drop_index()
        assert await hits("again") == 0
        head = await store.head("s")
        assert head is not None
        assert head.indexed_seq == 0
