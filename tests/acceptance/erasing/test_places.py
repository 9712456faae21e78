"""What an erasure does outside the store: what is Kipu's goes, what is a user's stays, and the receipt tells which."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ErasureUnfinishedError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.erasure import Emptied
from kipu.runtime.erasing.history_place import HistoryPlace
from kipu.runtime.erasing.workspace_place import BRANCH, CHOSEN, WorkspacePlace
from kipu.runtime.session_workspaces import SessionWorkspaces
from kipu.runtime.workspaces.checkpoints import blobs_into, record_checkpoint
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.session.patch import WORKSPACE
from kipu.stores.host import SystemClock
from kipu.wiring import open_manager
from tests.acceptance.erasing.crowded_session import WORKSPACES, canary, files_with


def git(folder: Path, *words: str) -> str:
    """Run git in a folder."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    ran = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@pytest.fixture
def sqlite_url(home: Path) -> str:
    """Return the URL of an empty store."""
    return f"sqlite:///{home}/store/sessions.db"


async def in_workspace(manager: SessionManager, workspace: Any, session_id: str) -> Session:
    """Make a session that works in a directory."""
    await manager.create_session(session_id)
    session = await manager.open(session_id)
    await session.add_event(MetadataChangedEvent(set={WORKSPACE: workspace.describe()}))
    return session


async def test_a_directory_that_a_user_chose_stays(sqlite_url: str, home: Path) -> None:
    """Erasing a session leaves the directory that its user chose as it was, and the receipt says so (C20)."""
    chosen = home / "project"
    chosen.mkdir()
    (chosen / "theirs").write_text("theirs")
    async with await open_manager(sqlite_url) as manager:
        provision = WorkspaceProvision(home / WORKSPACES, clock=SystemClock())
        await in_workspace(manager, await provision.directory("s1", path=chosen), "s1")
        receipt = await manager.erase_session("s1")
    assert receipt.kept == (CHOSEN,)
    assert (chosen / "theirs").read_text() == "theirs"


@pytest.mark.parametrize("commits", [False, True])
async def test_a_worktree_goes_and_its_branch_only_where_it_holds_nothing(
    sqlite_url: str, home: Path, commits: bool
) -> None:
    """A worktree goes with what was not committed; its branch stays where it has commits, and is named; others stay (C20)."""
    repository = home / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    (repository / "file").write_text("one")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "one")
    git(repository, "branch", "theirs")
    async with await open_manager(sqlite_url) as manager:
        provision = WorkspaceProvision(home / WORKSPACES, clock=SystemClock())
        workspace = await provision.worktree("s1", repository=repository)
        mark = canary()
        (workspace.root / "file").write_text(mark)
        if commits:
            git(workspace.root, "commit", "-qam", "two")
        await in_workspace(manager, workspace, "s1")
        receipt = await manager.erase_session("s1")
    assert not workspace.root.exists()
    assert receipt.kept == ((BRANCH,) if commits else ())
    branches = git(repository, "branch", "--format=%(refname:short)").split()
    assert branches == (["kipu/s1", "main", "theirs"] if commits else ["main", "theirs"])
    assert (repository / "file").read_text() == "one"
    if not commits:
        assert files_with(home, [mark]) == {}


async def test_a_link_in_place_of_a_directory_leads_nobody_out(sqlite_url: str, home: Path) -> None:
    """Where a session's directory was exchanged for a link, the link goes and what it leads to stays (C20)."""
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "theirs").write_text("theirs")
    async with await open_manager(sqlite_url) as manager:
        provision = WorkspaceProvision(home / WORKSPACES, clock=SystemClock())
        workspace = await provision.private("s1")
        await in_workspace(manager, workspace, "s1")
        workspace.root.rmdir()
        workspace.root.symlink_to(elsewhere)
        await manager.erase_session("s1")
    assert not workspace.root.is_symlink()
    assert (elsewhere / "theirs").read_text() == "theirs"


async def test_a_detached_fork_has_its_parent_s_files(sqlite_url: str, home: Path) -> None:
    """A fork that never worked gets its files as they were at the fork before its parent's directory goes (C11, C20)."""
    async with await open_manager(sqlite_url) as manager:
        provision = WorkspaceProvision(home / WORKSPACES, clock=SystemClock())
        workspace = await provision.private("parent")
        parent = await in_workspace(manager, workspace, "parent")
        (workspace.root / "file").write_text("as it was")
        await record_checkpoint(
            parent.add_events, workspace, put_blob=blobs_into(manager.store, "parent"), turn_id=None
        )
        fork = await parent.fork()
        mark = canary()
        await record_checkpoint(
            parent.add_events, workspace, put_blob=blobs_into(manager.store, "parent"), turn_id=None
        )
        (workspace.root / "file").write_text(mark)
        await manager.erase_session("parent", detach=True)
        kept = await manager.open(fork.session_id)
        own = await SessionWorkspaces(manager, provision).open(kept)
        assert own.root == home / WORKSPACES / fork.session_id
        assert (own.root / "file").read_text() == "as it was"
    assert not workspace.root.exists()
    assert files_with(home, [mark]) == {}


async def test_lines_of_other_sessions_stay_in_the_history(tmp_path: Path) -> None:
    """From the history of entered lines only whole entries of the session go, and all others stay as they were (C20)."""
    path = tmp_path / "chat_history"
    others = b"\n# 2026-01-01 00:00:00.000000\n+stays\n\n# 2026-01-01 00:00:01.000000\n+two\n+lines\n"
    path.write_bytes(others + b"\n# 2026-01-01 00:00:02.000000\n+goes\n+too\n" + b"\n# x\n+goes and more\n")
    async with await open_manager("memory://") as manager:
        await manager.create_session("s1")
        session = await manager.open("s1")
        await session.add_event(UserMessageEvent(content="goes\ntoo"))
        place = HistoryPlace(path)
        facts = await place.plan(session.head, store=manager.store)
        assert facts is not None
        assert "goes" not in str(facts)
        assert (await place.erase("s1", facts)).removed == {"lines": 1}
        assert (await place.erase("s1", facts)).removed == {"lines": 0}
    assert path.read_bytes() == others + b"\n# x\n+goes and more\n"


async def test_an_erasure_that_a_place_stops_goes_on_when_it_can(
    sqlite_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that cannot be emptied now leaves the erasure under way, which opening does not hinder and ends when it can (C20)."""
    async with await open_manager(sqlite_url) as manager:
        provision = WorkspaceProvision(home / WORKSPACES, clock=SystemClock())
        workspace = await provision.private("s1")
        (workspace.root / "file").write_text("x")
        await in_workspace(manager, workspace, "s1")

        async def fails(self: WorkspacePlace, session_id: str, facts: Any) -> Emptied:
            raise OSError(5, "the disk does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(WorkspacePlace, "erase", fails)
            with pytest.raises(ErasureUnfinishedError):
                await manager.erase_session("s1")
            assert await manager.receipts() == []
            async with await open_manager(sqlite_url) as other:
                assert await other.receipts() == []
    assert workspace.root.exists()
    async with await open_manager(sqlite_url) as manager:
        [receipt] = await manager.receipts()
        assert (receipt.sessions, receipt.resumed) == (("s1",), True)
        assert receipt.removed["store"]["events"] == 2
    assert not workspace.root.exists()


async def test_what_a_spool_held_is_erased_too(home: Path) -> None:
    """What was said while the primary store refused, and was merged, leaves no byte in either store when it is erased (A49, C20)."""
    primary, spool = home / "store" / "deep" / "sessions.db", home / "store" / "spool"
    url = f"sqlite:///{primary}?fallback=jsonl:///{spool}"
    mark = canary()
    primary.parent.write_text("in the way")
    async with await open_manager(url) as manager:
        await manager.create_session("s1", title=mark)
        session = await manager.open("s1")
        await session.add_event(UserMessageEvent(content=mark * 10))
        assert files_with(spool, [mark])
        primary.parent.unlink()
        primary.parent.mkdir()
        assert (await manager.erase_session("s1")).removed["store"]["events"] == 2
    assert files_with(home, [mark]) == {}
