"""This release on tables that the next one has widened: it works as before, until they are narrowed, and then it writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import NewerFormatError
from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore, IndexEntry, StoredEvent
from kipu.stores.postgres.address import Address
from kipu.stores.postgres.schema import FORMAT, Migration
from kipu.stores.postgres.store import PostgresStore
from kipu.stores.postgres.upkeep import migrate
from kipu.stores.postgres.upkeep import opened as opened_database
from kipu.testing.conformance import Place, Requirement, all_requirements
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.suite import StoreConformance
from tests.acceptance.postgres.kit import ask, begin, opened, record
from tests.servers import fresh_schema, open_postgres, postgres_url

KEPT_BY_A_SERVER = Capabilities(files=False, reason="a server keeps its files")
# What a next release may do: columns with a default, a table, an index, a wider type.
WIDER = Migration(
    FORMAT + 1,
    widen=(
        *(
            f"ALTER TABLE {{schema}}.{table} ADD COLUMN IF NOT EXISTS later text NOT NULL DEFAULT ''"
            for table in ("heads", "events", "idempotency", "bindings", "blobs", "members", "docs")
        ),
        'CREATE TABLE IF NOT EXISTS {schema}.later(session_id text COLLATE "C" PRIMARY KEY, what text)',
        "CREATE INDEX IF NOT EXISTS heads_by_later ON {schema}.heads(later, session_id)",
        "ALTER TABLE {schema}.events ALTER COLUMN v TYPE bigint",
    ),
    narrow=("ALTER TABLE {schema}.heads ALTER COLUMN later DROP DEFAULT",),
)
TOPICS = {
    "append",
    "idempotency",
    "reading",
    "heads",
    "listing",
    "work",
    "leases",
    "erasing",
    "searching",
    "letting_go",
}


async def open_widened(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    """Open a schema with a clock that a test moves, its tables widened."""
    await (await open_postgres(url, clock=clock, liveness=liveness)).close()
    database = await opened_database(url)
    await migrate(database, migrations=[WIDER])
    await database.close()
    return await open_postgres(url, clock=clock, liveness=liveness)


class WidenedConformance(StoreConformance):
    """The suite on widened tables."""

    def make_place(self, folder: Path) -> Place:
        """Return a schema of its own."""
        return FunctionPlace(partial(open_widened, fresh_schema(postgres_url())), KEPT_BY_A_SERVER)


@pytest.mark.long
class TestWidened(WidenedConformance):
    """On tables of the next release this one does all that the contract says (C25, PG-5)."""


def chosen_requirements() -> list[Any]:
    """Return what is tried in every run."""
    return [pytest.param(one, id=f"{one.id}-{one.name}") for one in all_requirements() if one.topic in TOPICS]


class TestWidenedInShort(WidenedConformance):
    """On tables of the next release this one appends, reads, lists, searches and erases as on its own (C25, PG-5)."""

    @pytest.mark.parametrize("requirement", chosen_requirements())
    async def test_requirement(self, requirement: Requirement, tmp_path: Path) -> None:
        """The store does what the numbered sentence of the contract says."""
        await super().test_requirement(requirement, tmp_path)


async def everything_in(url: str) -> dict[str, object]:
    """Return a checksum of every table, but for who noted to be at work."""
    schema = Address.parse(url).schema
    found = {}
    for table in ("heads", "events", "idempotency", "bindings", "blobs", "members", "docs", "meta"):
        but = "WHERE name NOT LIKE 'open.%'" if table == "meta" else ""
        [(found[table],)] = await ask(
            url, f'SELECT md5(string_agg(t::text, chr(10) ORDER BY t::text)) FROM "{schema}".{table} AS t {but}'
        )
    return found


def every_way_to_write(store: PostgresStore, lease: Any) -> dict[str, Awaitable[object]]:
    """Return a call of everything that writes, none of them begun."""
    event = StoredEvent(1, "one", record("x"))
    return {
        "append": store.append("one", [record("x")], token=lease.token),
        "append of another session": begin(store, "two"),
        "bind": store.bind("key", "one"),
        "claim": store.claim("one", owner="other", ttl_s=30),
        "renew": store.renew(lease),
        "release": store.release(lease),
        "put_blob": store.put_blob("one", b"bytes"),
        "index": store.index([IndexEntry("one", 1, ("x",))], indexed={"one": 1}),
        "drop_index": store.drop_index(),
        "adopt": store.adopt("one", [record("x")], lease=lease),
        "offload": store.offload("one", until=1, blobs=[], archive={}, lease=lease),
        "reload": store.reload("one", [event], lease=lease, complete=True),
        "erase": store.erase("one", lease=lease),
    }


async def test_release_that_is_too_old_reads_and_writes_nothing() -> None:
    """A release older than the tables' `oldest` is refused by name at every call that writes, reads on, and leaves no trace (B54, PG-5)."""
    url = fresh_schema(postgres_url())
    async with opened(url) as store:
        await begin(store, "one")
        lease = await store.claim("one", owner="me", ttl_s=300)
    await ask(url, f"UPDATE \"{Address.parse(url).schema}\".meta SET value = '{FORMAT + 1}' WHERE name = 'oldest'")
    await ask(url, f"DELETE FROM \"{Address.parse(url).schema}\".meta WHERE name LIKE 'open.%'")
    before = await everything_in(url)
    async with opened(url) as store:
        described = store.describe()
        assert described.read_only
        assert "update Kipu" in described.notes[0]
        for name, call in every_way_to_write(store, lease).items():
            with pytest.raises(NewerFormatError):
                await call
            assert await everything_in(url) == before, name
        assert len(await store.read("one")) == 1
        assert (await store.head("one")) is not None
    noted = await ask(url, f"SELECT count(*) FROM \"{Address.parse(url).schema}\".meta WHERE name LIKE 'open.%'")
    assert noted == [(0,)]  # it holds up nobody who narrows
