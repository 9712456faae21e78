"""Two who decide on the same head at the same moment: the second one decides again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kipu.ports.head import HeadPatch
from kipu.stores.postgres.address import Address
from tests.acceptance.postgres.kit import begin, opened, raw, record, until
from tests.servers import fresh_schema, postgres_url


@asynccontextmanager
async def both_have_decided(url: str) -> AsyncIterator[None]:
    """Hold a session's row until two writers stand before it, each with what it decided on the same head."""
    schema = Address.parse(url).schema
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}%'"
    async with await raw(url) as other, other.transaction():
        await other.execute(f'UPDATE "{schema}".heads SET version = version'.encode())
        yield
        await until(url, waiting, 2)


async def test_one_of_two_claims_that_were_decided_on_the_same_head_wins() -> None:
    """Of two claims that both found the session free one gets the lease, and the other is told that it is taken (C3)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as one, opened(url) as two:
        await begin(one, "s")
        async with both_have_decided(url):
            claims = asyncio.gather(*(store.claim("s", owner=f"o{n}", ttl_s=60) for n, store in enumerate((one, two))))
        leases = [lease for lease in await claims if lease is not None]
        head = await one.head("s")
        assert head is not None
        assert [lease.owner for lease in leases] == [head.lease_owner]


async def test_two_appends_that_were_decided_on_the_same_head_are_both_kept() -> None:
    """Of two appends that both were to be the next one, one comes after the other, and neither's change of the head is lost (C1, C2)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as one, opened(url) as two:
        await begin(one, "s")
        async with both_have_decided(url):
            appends = asyncio.gather(
                one.append("s", [record("a")], head=HeadPatch(set={"title": "kept"})),
                two.append("s", [record("b")], head=HeadPatch(set={"tags": ["kept"]})),
            )
        assert sorted(each.first_seq for each in await appends) == [2, 3]
        head = await one.head("s")
        assert head is not None
        assert (head.title, list(head.tags), head.event_count) == ("kept", ["kept"], 3)
