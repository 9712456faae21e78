"""A session that a kill left before its first event: only a place in a JSONL store, which hinders nobody for good (JL-15)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kipu.errors import CopyMismatchError
from kipu.events.conversation import UserMessageEvent
from kipu.interop.import_events import import_events
from kipu.manager.copying import copy_store
from kipu.manager.lifecycle.retention import Retention
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.manager.lifecycle.sweeper import Sweeper
from kipu.ports.principal import Principal
from kipu.wiring import open_manager, open_store
from tests.unit.cli.command_line import CommandLine


def left(store: Path, session_id: str, *, log: bytes | None = None) -> None:
    """Leave what a kill leaves: the folder and its lock, and maybe the file that the first line was to stand in."""
    folder = store / session_id
    folder.mkdir(mode=0o700)
    (folder / "lock").touch(mode=0o600)
    if log is not None:
        (folder / "000001.jsonl").write_bytes(log)


async def said(url: str, *session_ids: str) -> list[str]:
    """Return what stands in these sessions."""
    async with await open_manager(url) as manager:
        found = [await (await manager.open(session_id)).get_full_history() for session_id in session_ids]
    return [str(event.content) for events in found for event in events if isinstance(event, UserMessageEvent)]


@pytest.mark.parametrize("log", [None, b""], ids=["no log", "empty log"])
async def test_a_store_with_such_a_place_is_copied_and_moved(log: bytes | None, tmp_path: Path) -> None:
    """There is nothing to copy, so nothing is missing in the copy, and the store is moved as every other (C22, C16)."""
    url = f"jsonl:///{tmp_path}/store"
    async with await open_manager(url) as manager:
        await manager.create_session("one")
        await manager.save_event("one", UserMessageEvent(content="hello"))
    left(tmp_path / "store", "never", log=log)
    ran = CommandLine(tmp_path, url).process("copy", url, f"sqlite:///{tmp_path}/copy.db")
    assert ran.code == 0, ran.stderr
    ran = CommandLine(tmp_path, url).process("copy", url, f"sqlite:///{tmp_path}/moved.db", "--cut-over")
    assert ran.code == 0, ran.stderr
    assert await said(f"sqlite:///{tmp_path}/moved.db", "one") == ["hello"]


async def test_a_session_of_which_nothing_can_be_read_is_not_left_out_unsaid(tmp_path: Path) -> None:
    """Where there are bytes that are no event, something was lost, and the copy says that it has not got it (C22, C16)."""
    url = f"jsonl:///{tmp_path}/store"
    await (await open_store(url)).close()
    left(tmp_path / "store", "lost", log=b"\0" * 300 + b"\n")
    source, target = await open_store(url), await open_store(f"sqlite:///{tmp_path}/copy.db")
    try:
        with pytest.raises(CopyMismatchError):
            await copy_store(source, target, owner="test")
    finally:
        await source.close()
        await target.close()


async def test_a_copy_that_was_killed_at_the_beginning_of_a_session_goes_on(tmp_path: Path) -> None:
    """Sessions and forks that only have their place in the target are copied into it (C22, C16)."""
    source = f"sqlite:///{tmp_path}/source.db"
    async with await open_manager(source) as manager:
        await manager.create_session("one")
        await manager.save_event("one", UserMessageEvent(content="hello"))
        fork = await (await manager.open("one")).fork()
        await fork.add_event(UserMessageEvent(content="in the fork"))
    target = f"jsonl:///{tmp_path}/target"
    await (await open_store(target)).close()
    for session_id in ("one", fork.session_id):
        left(tmp_path / "target", session_id)
    ran = CommandLine(tmp_path, source).process("copy", source, target)
    assert ran.code == 0, ran.stderr
    assert await said(target, "one", fork.session_id) == ["hello", "hello", "in the fork"]


async def test_an_import_that_was_killed_at_its_beginning_takes_its_own_id(tmp_path: Path) -> None:
    """Run again, it puts the session where it was to be put, and not beside an empty one (C16)."""
    url = f"jsonl:///{tmp_path}/store"
    await (await open_store(url)).close()
    left(tmp_path / "store", "imported")
    event = UserMessageEvent(content="hello", session_id="imported").model_dump(mode="json")
    (tmp_path / "file.jsonl").write_text(json.dumps(event) + "\n")
    async with await open_manager(url) as manager:
        report = await import_events(manager, tmp_path / "file.jsonl")
        assert [session.session_id for session in report.sessions] == ["imported"]
        assert await manager.list_sessions() == ["imported"]


async def test_an_archive_whose_return_was_killed_at_its_beginning_comes_back(tmp_path: Path) -> None:
    """Its owner brings it back: nobody else has what is not there (A56, C16)."""
    url, bob = f"jsonl:///{tmp_path}/store", Principal("bob")
    async with await open_manager(f"sqlite:///{tmp_path}/lost.db", principal=bob) as manager:
        await manager.create_session("one")
        await manager.save_event("one", UserMessageEvent(content="hello"))
        await SessionArchives(manager).archive("one", to=str(tmp_path / "archives"))
    await (await open_store(url)).close()
    left(tmp_path / "store", "one")
    async with await open_manager(url, principal=bob) as manager:
        done = await SessionArchives(manager).unarchive("one", source=str(tmp_path / "archives"))
        assert (done.session_id, done.changed) == ("one", True)
        events = await (await manager.open("one")).get_full_history()
        assert "hello" in [event.content for event in events if isinstance(event, UserMessageEvent)]


async def test_nothing_is_due_for_a_session_that_never_began(tmp_path: Path) -> None:
    """No sweep is kept from what is not there, each time anew (A55)."""
    url = f"jsonl:///{tmp_path}/store"
    async with await open_manager(url) as manager:
        await manager.create_session("one")
    left(tmp_path / "store", "never")
    async with await open_manager(url) as manager:
        swept = await Sweeper(manager, Retention(expire_after_days=1)).sweep()
        assert (dict(swept.done), dict(swept.kept)) == ({}, {})
