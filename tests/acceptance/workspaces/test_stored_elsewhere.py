"""Files that are kept in the store: erased, archived, copied and encrypted with their session (B61, C20, C22)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from kipu.manager.manager import SessionManager
from kipu.security.key_file import create_key_file
from kipu.stores.host import SystemEntropy
from kipu.wiring import open_manager
from tests.acceptance.workspaces.machines import done, ended, machine, process, results, say
from tests.acceptance.workspaces.test_stored_files import read, shell, write

MARK = "nobody else writes this: quetzal-7731"


async def until(holds: Callable[[], bool]) -> None:
    """Return when something holds that another task brings about."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another task tells
            await asyncio.sleep(0.02)


async def made(manager: SessionManager) -> str:
    """Have a session write a file, and return its id."""
    await done(manager, write("secret.txt", MARK))
    return (await manager.get_or_create("test:1")).session_id


async def test_erasing_a_session_removes_its_files_from_the_store_and_from_every_machine(tmp_path: Path) -> None:
    """Kept files go with the session, and the copy of another machine when a worker begins there (C20, B61)."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with machine(url, tmp_path / "a", workspaces_mode="stored") as one:
        session_id = await made(one.manager)
    async with machine(url, tmp_path / "b", workspaces_mode="stored") as two:
        assert MARK in results(await done(two.manager, read("secret.txt")))[0]
    folders = [tmp_path / name / "workspaces" / session_id for name in "ab"]
    assert all((folder / "secret.txt").exists() for folder in folders)
    async with await open_manager(url, workspaces=tmp_path / "b" / "workspaces") as manager:
        receipt = await manager.erase_session(session_id)
        assert any("other machines" in kept for kept in receipt.kept)
    assert not folders[1].exists()
    assert folders[0].exists()
    async with machine(url, tmp_path / "a", workspaces_mode="stored"):
        await until(lambda: not folders[0].exists())
    left = [path for path in tmp_path.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    assert left == []


async def test_kept_files_are_sealed_where_the_store_is(tmp_path: Path) -> None:
    """No byte of a file stands in an encrypted store, and another machine with the key has the file (B61, C18)."""
    create_key_file(tmp_path / "key", entropy=SystemEntropy())
    url = f"sqlite:///{tmp_path}/store.db?encrypt=file:{tmp_path}/key"
    async with machine(url, tmp_path / "a", workspaces_mode="stored") as one:
        await made(one.manager)
    assert not [p for p in tmp_path.glob("store.db*") if MARK.encode() in p.read_bytes()]
    async with machine(url, tmp_path / "b", workspaces_mode="stored") as two:
        assert MARK in results(await done(two.manager, read("secret.txt")))[0]


async def test_copied_session_has_its_files_on_one_machine_too(tmp_path: Path) -> None:
    """Where a store is used by one machine, files that another kept in it are laid out once and are local from then on (B61, C22)."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with machine(url, tmp_path / "a", workspaces_mode="stored") as one:
        await made(one.manager)
    async with machine(url, tmp_path / "b", workspaces_mode="local") as two:
        assert MARK in results(await done(two.manager, read("secret.txt")))[0]
        session = await two.manager.get_or_create("test:1")
        assert not {"at", "saved", "place"} & (session.head.workspace or {}).keys()


async def test_files_of_before_come_along_when_they_are_kept_from_now_on(tmp_path: Path) -> None:
    """A session that began with local files is kept from its next turn on, where its files are (B61)."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with machine(url, tmp_path / "a", workspaces_mode="local") as one:
        await made(one.manager)
        await done(one.manager, write("later.txt", "later"))
    async with machine(url, tmp_path / "a", workspaces_mode="stored") as one:
        assert MARK in results(await done(one.manager, read("secret.txt")))[0]
    async with machine(url, tmp_path / "b", workspaces_mode="stored") as two:
        assert "later" in results(await done(two.manager, read("later.txt")))[0]


async def test_fork_keeps_its_files_when_its_parent_is_erased(tmp_path: Path) -> None:
    """What a fork got of its parent's files is kept with the fork, and laid out elsewhere without the parent (B61, C11)."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with machine(url, tmp_path / "a", workspaces_mode="stored") as one:
        parent = await one.manager.open(await made(one.manager))
        await done(one.manager, write("later.txt", "later"))
        await parent.refresh()
        fork = await parent.fork()
        await one.builder.workspaces.open(fork)
        await one.manager.erase_session(parent.session_id, detach=True)
    async with machine(url, tmp_path / "b", workspaces_mode="stored") as two:
        files = (await two.builder.workspaces.open(await two.manager.open(fork.session_id))).files
        assert files.read("secret.txt") == MARK.encode()
        assert files.read("later.txt") == b"later"


async def test_helper_taken_up_on_another_machine_works_in_its_parents_files_there(tmp_path: Path) -> None:
    """A delegated task whose machine was killed goes on where its parent's turn does (B61, C14)."""
    url = f"sqlite:///{tmp_path}/store.db"
    task = json.dumps([shell("echo begun > begun.txt; sleep 600"), write("by_helper.txt", "helped")])
    async with await open_manager(url) as manager:
        async with process(url, tmp_path / "a", workspaces_mode="stored") as first:
            before = (await manager.get_or_create("test:1")).history.last_seq
            session = await say(manager, write("a.txt", "one"), ("delegate", {"task": task}), read("by_helper.txt"))
            await until(lambda: any((tmp_path / "a").rglob("begun.txt")))
            first.kill()
            await first.wait()
        async with process(url, tmp_path / "b", workspaces_mode="stored"):
            events = await ended(session, after=before)
    assert "helped" in results(events)[-1], results(events)
