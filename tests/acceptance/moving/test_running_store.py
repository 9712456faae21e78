"""A store that workers and people use is moved to PostgreSQL: real processes on both sides of it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from kipu.wiring import open_store
from tests.acceptance.moving.kit import (
    acknowledged,
    chatter,
    messages_in,
    ran,
    refused_at,
    running,
    until,
    until_answered,
    worker,
)
from tests.servers import fresh_schema, postgres_url

NAMES = ("ada", "bob")


async def test_a_running_store_moves_and_every_message_is_answered_once(tmp_path: Path) -> None:
    """While workers and senders use a SQLite store it moves to PostgreSQL: nothing acknowledged is lost or answered twice (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", fresh_schema(postgres_url())
    async with AsyncExitStack() as stack:
        old = [await stack.enter_async_context(running(*worker(source), home=tmp_path)) for _ in range(2)]
        for name in NAMES:
            await stack.enter_async_context(running(*chatter(name, tmp_path, (source, target)), home=tmp_path))
        await until(lambda: len(acknowledged(tmp_path, NAMES)) > 60)
        code, told, errors = await ran("copy", source, target, "--cut-over", "--wait-s", "5", home=tmp_path)
        assert code == 0, errors
        assert [each["event"] for each in told] == ["copied", "moved"]
        async with asyncio.timeout(30):
            ends = [await process.wait() for process in old]
        assert ends == [5, 5]
        said = [(await process.communicate())[1].decode() for process in old]
        assert all("store_moved" in each for each in said), said
        await stack.enter_async_context(running(*worker(target), home=tmp_path))
        moved = [text for text, (place, _) in acknowledged(tmp_path, NAMES).items() if place == 1]
        await until(lambda: len(acknowledged(tmp_path, NAMES)) > 40 + len(moved))
        (tmp_path / "stop").touch()
        await until_answered(target)
    acked = acknowledged(tmp_path, NAMES)
    store = await open_store(target)
    found = await messages_in(store, check=True)
    await store.close()
    assert sorted(found) == sorted(set(found))
    assert set(acked) <= set(found)
    assert {place for place, _ in acked.values()} == {0, 1}
    accepted_s = min(at for place, at in acked.values() if place == 1)
    assert accepted_s - refused_at(tmp_path, NAMES)[0] < 10


async def test_whoever_opens_a_store_while_it_moves_is_told_where_it_goes(tmp_path: Path) -> None:
    """A target that is being filled takes nothing, a source that has moved names it, and reading both goes on (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", fresh_schema(postgres_url())
    assert (await ran("run", "--store", source, "hello", home=tmp_path))[0] == 0
    async with running(*(_follow(source, target)), home=tmp_path) as follower:
        assert follower.stdout is not None
        async with asyncio.timeout(60):
            assert b'"copied"' in await follower.stdout.readline()
        code, _, errors = await ran("run", "--store", target, "hello", home=tmp_path)
        assert code == 4, errors
        assert "store_being_filled" in errors
        assert (await ran("run", "--store", source, "while it is followed", home=tmp_path))[0] == 0
        async with asyncio.timeout(60):
            assert b'"followed"' in await follower.stdout.readline()
        code, _, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
        assert (code, "move_running" in errors) == (4, True), errors
    code, _, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
    assert code == 0, errors
    code, _, errors = await ran("run", "--store", source, "too late", home=tmp_path)
    assert code == 5
    assert "store_moved" in errors
    assert "schema=" in errors  # it says where
    for url in (source, target):
        code, told, errors = await ran("ls", "--store", url, home=tmp_path)
        assert code == 0, errors
        assert len(str(told)) > 10
    assert (await ran("run", "--store", target, "in time", home=tmp_path))[0] == 0


def _follow(source: str, target: str) -> tuple[str, ...]:
    from tests.acceptance.moving.kit import KIPU

    return (KIPU, "copy", source, target, "--follow", "--json")
