"""A PostgreSQL store whose growing tables are in parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu import UserMessageEvent
from kipu.stores.postgres.address import Address
from kipu.wiring import open_manager
from tests.acceptance.postgres.kit import ask
from tests.acceptance.postgres.test_upkeep import kipu
from tests.servers import fresh_schema, postgres_url

_PARTS = "SELECT count(*) FROM pg_inherits WHERE inhparent = '\"{schema}\".{table}'::regclass"


async def test_store_init_makes_tables_in_parts(tmp_path: Path) -> None:
    """`kipu store init --partitions` keeps events, terms and blobs in parts, each set as the whole is (PG-40)."""
    url = fresh_schema(postgres_url())
    name = Address.parse(url).schema
    assert (await kipu("store", "init", "--partitions", "4", "--store", url, home=tmp_path))[0] == 0
    for table, parts in {"events": 4, "docs": 4, "blobs": 4, "heads": 0}.items():
        assert await ask(url, _PARTS.format(schema=name, table=table)) == [(parts,)], table
    settings = f"SELECT reloptions FROM pg_class WHERE oid = '\"{name}\".events_3'::regclass"
    assert await ask(url, settings) == [(["toast_tuple_target=8160"],)]
    stored = "SELECT attstorage FROM pg_attribute WHERE attrelid = '\"{}\".events_3'::regclass AND attname = 'body'"
    assert (await ask(url, stored.format(name)))[0][0] in {"e", b"e"}
    assert (await kipu("store", "check", "--store", url, home=tmp_path))[0] == 0
    async with await open_manager(url) as manager:
        for number in range(20):
            session = await manager.get_or_create(f"web:{number}")
            await session.add_event(UserMessageEvent(content=f"word{number}"))
        await manager.catch_up_index()
        assert len((await manager.search("word7")).items) == 1
    used = await ask(url, f'SELECT count(DISTINCT tableoid) FROM "{name}".events')
    assert used == [(4,)]


@pytest.mark.parametrize("parts", ["1", "5000"])
async def test_store_init_refuses_a_number_of_parts_that_is_none(tmp_path: Path, parts: str) -> None:
    """A number of parts that makes no sense is refused before anything is made (PG-40)."""
    url = fresh_schema(postgres_url())
    code, _, said = await kipu("store", "init", "--partitions", parts, "--store", url, home=tmp_path)
    assert (code, "from 2 to 1024" in said) == (2, True), said
    assert await ask(url, f"SELECT count(*) FROM pg_namespace WHERE nspname = '{Address.parse(url).schema}'") == [(0,)]


async def test_store_init_leaves_tables_that_are_there(tmp_path: Path) -> None:
    """Tables that are there are not divided, nor touched; a store of files has no parts (PG-40)."""
    url = fresh_schema(postgres_url())
    assert (await kipu("store", "init", "--store", url, home=tmp_path))[0] == 0
    code, _, said = await kipu("store", "init", "--partitions", "4", "--store", url, home=tmp_path)
    assert (code, "copy the sessions" in said) == (2, True), said
    assert (await kipu("store", "init", "--partitions", "4", "--store", "sqlite:///x.db", home=tmp_path))[0] == 2
