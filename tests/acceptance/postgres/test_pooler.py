"""PostgreSQL behind a real pooler in transaction mode, which gives every transaction another connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kipu.testing.conformance import Place, Requirement, all_requirements
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from tests.acceptance.postgres.cluster import server_user
from tests.acceptance.postgres.kit import begin, log, opened, record, text_of
from tests.acceptance.postgres.pooler import pooled
from tests.servers import fresh_schema, open_postgres, postgres_url

KEPT_BY_A_SERVER = Capabilities(files=False, reason="a server keeps its files")
# What rests on connections, transactions and time; the rest is the same SQL over any connection.
TOPICS = {"append", "idempotency", "leases", "bindings", "following", "contending", "cancelling", "blobs", "lasting"}


def chosen_requirements() -> list[Any]:
    """Return what is tried in every run."""
    return [pytest.param(one, id=f"{one.id}-{one.name}") for one in all_requirements() if one.topic in TOPICS]


@pytest.fixture(scope="module")
def pooler() -> Iterator[str]:
    """Give a pooler before the run's server."""
    place = parse_qs(urlsplit(postgres_url()).query)["host"][0]
    with pooled(place, user=server_user()) as url:
        yield url


class PooledConformance(StoreConformance):
    """The suite against a pooler, with what the URL of one has."""

    url = ""

    @pytest.fixture(autouse=True)
    def behind(self, pooler: str) -> None:
        """Take the module's pooler."""
        type(self).url = pooler

    def make_place(self, folder: Path) -> Place:
        """Return a schema of its own."""
        url = fresh_schema(self.url, prepare="off", notify="off")
        return FunctionPlace(partial(open_postgres, url), KEPT_BY_A_SERVER)


@pytest.mark.long
class TestPooled(PooledConformance):
    """Behind a pooler `postgresql://` does all that the contract says (C25, PG-7)."""


class TestPooledInShort(PooledConformance):
    """What rests on connections, transactions and following does so behind a pooler (C25, PG-7)."""

    @pytest.mark.parametrize("requirement", chosen_requirements())
    async def test_requirement(self, requirement: Requirement, tmp_path: Path) -> None:
        """The store does what the numbered sentence of the contract says."""
        await super().test_requirement(requirement, tmp_path)


async def test_pooler_is_found_to_pass_no_notices(pooler: str) -> None:
    """A pooler's LISTEN succeeds and hears nothing: that is found out, and others' events are seen by looking (PG-7, PG-18)."""
    url = fresh_schema(pooler, prepare="off")
    async with opened(url) as one, opened(url) as two:
        assert any("looked for" in note for note in one.describe().notes)
        await begin(one, "s")
        everything = two.follow()
        waiting = asyncio.ensure_future(anext(everything))
        await two.append("s", [record("its own")])
        async with asyncio.timeout(60):
            assert text_of(await waiting) == "its own"
            await one.append("s", [record("the other's")])
            assert text_of(await anext(everything)) == "the other's"


async def test_many_clients_share_the_few_connections_of_a_pooler(pooler: str) -> None:
    """More stores than the pooler has connections append to one session and to many, and every append is there once (C2, PG-7)."""
    url = fresh_schema(pooler, prepare="off", notify="off", connections="4")
    async with opened(url) as first:
        await begin(first, "hot")
        async with AsyncExitStack() as stack:
            stores = [first, *[await stack.enter_async_context(opened(url)) for _ in range(5)]]
            work = [store.append("hot", [record(f"{number}")]) for number in range(8) for store in stores]
            work += [begin(store, f"s{number}-{at}") for number in range(4) for at, store in enumerate(stores)]
            await asyncio.gather(*work)
        assert [event.seq for event in await log(first, "hot")] == list(range(1, 50))
