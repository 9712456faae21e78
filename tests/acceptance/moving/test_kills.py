"""A move that is killed at any of its steps: one store can be written, and running it again ends it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kipu.errors import StoreBeingFilledError, StoreMovedError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.copying import heads_of
from kipu.manager.manager import SessionManager
from kipu.ports.store import StoreMark
from kipu.wiring import open_manager, open_store
from tests.acceptance.moving.kit import assert_same, environment, messages_in, ran

# Which step, which time, just before it or after; and which store takes a message then.
STEPS = [
    ("filling", 1, "after", "source"),
    ("append", 1, "before", "source"),
    ("append", 7, "after", "source"),
    ("append", 20, "before", "source"),
    ("bury", 1, "before", "source"),
    ("leaving", 1, "after", "source"),
    ("beside", 2, "before", "source"),
    ("closed", 1, "before", "source"),
    ("closed", 1, "after", None),
    ("beside", 3, "before", None),
    ("moved", 1, "before", None),
    ("moved", 1, "after", None),
    ("not filling", 1, "before", None),
    ("not filling", 1, "after", "target"),
]


async def filled(url: str) -> None:
    """Make a store with sessions, a fork, a key that moved and an erased session."""
    async with await open_manager(url) as manager:
        for number in range(12):
            await manager.receive(
                f"telegram:{number}", UserMessageEvent(content=f"{number}", source_message_id=f"m{number}")
            )
        session = await manager.get_or_create("telegram:3")
        await (await session.fork()).add_event(UserMessageEvent(content="another way"))
        await manager.new_session("telegram:4")
        await manager.delete_session((await manager.get_or_create("telegram:5")).session_id)


async def killed_at(source: str, target: str, step: tuple[str, int, str], *, home: Path) -> int:
    """Run a move that kills itself; return how it ended."""
    command = [
        sys.executable,
        "-m",
        "tests.acceptance.moving.killed_copier",
        source,
        target,
        step[0],
        str(step[1]),
        step[2],
    ]
    process = await asyncio.create_subprocess_exec(*command, env=environment(home), cwd=Path.cwd())
    async with asyncio.timeout(60):
        return await process.wait()


async def takes(url: str, text: str) -> bool:
    """Return whether the store takes a message now."""
    manager: SessionManager
    async with await open_manager(url) as manager:
        try:
            await manager.receive("telegram:1", UserMessageEvent(content=text, source_message_id=text))
        except (StoreMovedError, StoreBeingFilledError):
            return False
    return True


@pytest.mark.parametrize(("step", "number", "when", "writable"), STEPS)
async def test_a_killed_move_leaves_one_store_at_most_and_goes_on(
    tmp_path: Path, step: str, number: int, when: str, writable: str | None
) -> None:
    """Killed at this step never both stores take a message; run again the move ends, with every message once (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    await filled(source)
    assert await killed_at(source, target, (step, number, when), home=tmp_path) == -9
    took = {name for name, url in (("source", source), ("target", target)) if await takes(url, f"said to {name}")}
    assert took == ({writable} if writable else set())
    code, told, errors = await ran("copy", source, target, "--cut-over", "--wait-s", "0", home=tmp_path)
    assert code == 0, errors
    assert told[-1]["event"] == "moved"
    begins, ends = await open_store(source), await open_store(target)
    try:
        if writable != "target":
            await assert_same(begins, ends)
        found = await messages_in(ends)
        assert found.count("said to source") == int(writable == "source")
        assert found.count("said to target") == int(writable == "target")
        assert [each.session_id for each in await ends.tombstones()] == [
            each.session_id for each in await begins.tombstones()
        ]
    finally:
        await begins.close()
        await ends.close()
    assert (await takes(source, "later"), await takes(target, "later")) == (False, True)


@pytest.mark.parametrize("step", [("leaving", 1, "after"), ("closed", 1, "after"), ("moved", 1, "after")])
async def test_a_killed_move_can_be_called_off(tmp_path: Path, step: tuple[str, int, str]) -> None:
    """`--cancel` lets the source be used again as long as the target was not opened, and the move can be made later (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    await filled(source)
    assert await killed_at(source, target, step, home=tmp_path) == -9
    code, _, errors = await ran("copy", source, target, "--cancel", home=tmp_path)
    assert code == 0, errors
    assert (await takes(source, "back"), await takes(target, "back")) == (True, False)
    code, told, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
    assert code == 0, errors
    assert told[0]["events"] == 1  # only what came since
    code, _, errors = await ran("copy", source, target, "--cancel", home=tmp_path)
    assert code == 2, errors


async def test_a_move_can_be_called_off_while_its_target_is_away(tmp_path: Path) -> None:
    """A source that was closed is let go of though the server it was to move to cannot be reached (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", "postgresql://kipu@127.0.0.1:1/gone"
    await filled(source)
    store = await open_store(source)
    await store.set_mark(StoreMark("closed", "m1", target))
    await store.close()
    assert not await takes(source, "closed")
    code, _, errors = await ran("copy", source, target, "--cancel", home=tmp_path)
    assert code == 0, errors
    assert "cannot be opened now" in errors
    assert await takes(source, "back")


async def test_a_move_that_goes_on_copies_only_what_is_missing(tmp_path: Path) -> None:
    """A killed move finds what it has copied: the second run adds the rest and nothing twice (C22)."""
    source, target = f"sqlite:///{tmp_path}/a.db", f"jsonl:///{tmp_path}/b"
    await filled(source)
    assert await killed_at(source, target, ("append", 9, "after"), home=tmp_path) == -9
    store = await open_store(target)
    there = sum([head.last_seq - head.base_seq async for head in heads_of(store)])
    await store.close()
    assert there > 0
    begins = await open_store(source)
    whole = sum([head.last_seq - head.base_seq async for head in heads_of(begins)])
    await begins.close()
    code, told, errors = await ran("copy", source, target, "--cut-over", home=tmp_path)
    assert code == 0, errors
    assert told[0]["events"] == whole - there
