"""A store that workers and people use is moved to PostgreSQL: real processes on both sides of it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from kipu.events.conversation import UserMessageEvent
from kipu.manager.copying import heads_of
from kipu.wiring import open_manager, open_store
from tests.acceptance.moving.kit import (
    KIPU,
    acknowledged,
    chatter,
    messages_in,
    ran,
    refused_at,
    running,
    started,
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
        async with asyncio.timeout(60):
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
    try:
        found = await messages_in(store, check=True)
    finally:
        await store.close()
    assert sorted(found) == sorted(set(found))
    assert set(acked) <= set(found)
    assert {place for place, _ in acked.values()} == {0, 1}
    accepted_s = min(at for place, at in acked.values() if place == 1)
    assert accepted_s - refused_at(tmp_path, NAMES)[0] < 10


async def test_a_worker_of_a_store_that_is_filled_waits_until_it_is_opened(tmp_path: Path) -> None:
    """Started too early it takes no turn, though messages are there; once the store is opened it answers them (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    async with await open_manager(source) as manager:
        for number in range(3):
            await manager.receive(f"telegram:{number}", UserMessageEvent(content=f"m{number}"))
    async with running(*_follow(source, target), home=tmp_path) as follower:
        assert follower.stdout is not None
        async with asyncio.timeout(60):
            assert b'"copied"' in await follower.stdout.readline()
        early = await started(*worker(target), home=tmp_path)
        assert early.stdout is not None
        async with asyncio.timeout(60):
            assert b'"ready"' in await early.stdout.readline()
    store = await open_store(target)
    try:
        assert [head.open_turn async for head in heads_of(store)] == [None] * 3
        code, _, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
        assert code == 0, errors
        await until_answered(target)
    finally:
        early.terminate()
        await early.communicate()
        await store.close()


async def test_a_move_of_a_damaged_store_says_what_is_lost(tmp_path: Path) -> None:
    """Where records cannot be read, the rest is moved, a `damaged` event stands in each one's place, and it ends with 1 (C16, C22)."""
    source, target = f"jsonl:///{tmp_path}/a", f"sqlite:///{tmp_path}/b.db"
    async with await open_manager(source) as manager:
        hurt, fine = [await manager.get_or_create(f"telegram:{number}") for number in range(2)]
        for session in (hurt, fine):
            await session.add_events([UserMessageEvent(content=f"line {number}") for number in range(6)])
    (segment,) = (tmp_path / "a" / hurt.session_id).glob("*.jsonl")
    lines = segment.read_bytes().split(b"\n")
    lines[3] = b"x" * len(lines[3])
    segment.write_bytes(b"\n".join(lines))
    code, told, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
    assert code == 1, errors
    assert "records are lost" in errors
    assert (told[-1]["event"], told[-1]["lost"], told[-1]["sessions"]) == ("moved", 1, 2)
    store = await open_store(target)
    try:
        events = await store.read(hurt.session_id)
        assert [event.seq for event in events] == list(range(1, 8))
        assert [event.record.event_type for event in events].count("damaged") == 1
        assert len(await store.read(fine.session_id)) == 7
    finally:
        await store.close()


async def test_memory_moves_with_the_store_and_what_was_forgotten_does_not(tmp_path: Path) -> None:
    """Facts are in the target at the end, and one that was forgotten while the store was followed is not (C20, C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"jsonl:///{tmp_path}/b"
    async with await open_manager(source) as manager:
        await manager.get_or_create("cli:s")
    for text in ("the canary sings", "the owl sleeps"):
        code, _, errors = await ran("memory", "add", text, "--store", source, home=tmp_path)
        assert code == 0, errors
    assert (await ran("copy", source, target, home=tmp_path))[0] == 0
    _, told, _ = await ran("memory", "ls", "--store", target, home=tmp_path)
    facts = {each["text"]: each["id"] for each in _facts(told)}
    assert set(facts) == {"the canary sings", "the owl sleeps"}
    code, _, errors = await ran("memory", "forget", facts["the owl sleeps"], "--yes", "--store", source, home=tmp_path)
    assert code == 0, errors
    code, _, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
    assert code == 0, errors
    _, told, _ = await ran("memory", "ls", "--store", target, home=tmp_path)
    assert {each["text"] for each in _facts(told)} == {"the canary sings"}


def _facts(told: list[Any]) -> list[Any]:
    (page,) = told
    return list(page["facts"] if isinstance(page, dict) else page)


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
    return (KIPU, "copy", source, target, "--follow", "--json")
