"""Files that stay on a machine, and files that all machines see: who takes a turn, and what its sender is told (B61)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import HostBoundError, SharedRootError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.conversation import ToolStartedEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.runtime import Runtime
from kipu.runtime.workspaces.place import Place, Placing
from kipu.runtime.workspaces.presence import Presence
from kipu.session.patch import WORKSPACE
from kipu.wiring import open_manager
from tests.acceptance.workspaces.machines import done, ended, machine, outcome, process, results, say
from tests.acceptance.workspaces.test_stored_files import read, shell, write
from tests.servers import fresh_schema, postgres_url


@pytest.fixture
def url() -> str:
    """Return a PostgreSQL store of its own: who works there is kept in it."""
    return fresh_schema(postgres_url())


@pytest.fixture
async def manager(url: str) -> AsyncIterator[SessionManager]:
    """Give a manager of somebody who sends messages and runs nothing."""
    async with await open_manager(url) as opened:
        yield opened


async def chosen(run: Runtime, path: Path, *, chat: str) -> Session:
    """Return a session that works in a directory that somebody chose on this machine."""
    session = await run.manager.get_or_create(f"test:{chat}")
    workspace = await run.builder.provision.directory(session.session_id, path=path)
    await session.add_event(MetadataChangedEvent(set={WORKSPACE: workspace.describe()}))
    return session


async def test_chosen_directory_is_left_to_its_machine(url: str, manager: SessionManager, tmp_path: Path) -> None:
    """While the machine that has the directory works, no other takes the turn, and others' turns are not held up (B61)."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "here.txt").write_text("here")
    async with machine(url, tmp_path / "a", accepts=lambda _session_id: False) as maker:
        session = await chosen(maker, project, chat="bound")
        place = (session.head.workspace or {})["place"]
    status = await ControlLane(manager, wake=lambda _session_id: None).status(session.session_id)
    assert status.bound_to == place[1]
    async with machine(url, tmp_path / "b") as other:
        before = session.head.last_seq
        await say(manager, read("here.txt"), chat="bound")
        await done(manager, write("a.txt", "one"), chat="free")
        await other.worker.sweep()
        await other.worker.until_idle()
        assert [each.name for each in other.elsewhere.waiting.values()] == [place[1]]
        head = await manager.store.head(session.session_id)
        assert head is not None
        assert head.open_turn is None
        assert head.waiting
        async with process(url, tmp_path / "a"):
            events = await ended(await manager.open(session.session_id), after=before)
        assert "here" in results(events)[0]


async def test_sender_is_told_where_no_worker_has_the_files(url: str, manager: SessionManager, tmp_path: Path) -> None:
    """Where nobody works on the machine that has the files, the turn fails and says which machine that is (B61)."""
    project = tmp_path / "project"
    project.mkdir()
    async with machine(url, tmp_path / "a", accepts=lambda _session_id: False) as maker:
        session = await chosen(maker, project, chat="told")
        name = (session.head.workspace or {})["place"][1]
    async with machine(url, tmp_path / "b", bound_wait_s=0.5) as other:
        finished = outcome(await done(manager, read("here.txt"), chat="told"))
        assert finished.outcome == "failed"
        assert "host_bound" in str(finished.error)
        assert name in str(finished.error)
        with pytest.raises(HostBoundError):
            await other.builder.workspaces.open(await other.manager.open(session.session_id))


async def test_killed_machine_counts_as_gone_only_when_its_lease_is_not_renewed(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """Presence is a lease: a machine that works is there, one that was killed is not after a while (B61)."""
    ticks = [0.0]
    async with machine(url, tmp_path / "b", accepts=lambda _session_id: False) as other:
        presence = Presence(other.manager, other.placing, monotonic_s=lambda: ticks[0], ttl_s=30.0)
        async with process(url, tmp_path / "a") as one:
            folder = tmp_path / "a" / "workspaces"
            session = await manager.get_or_create("test:presence")
            await done(manager, write("a.txt", "one"), chat="presence")
            await session.refresh()
            at = (session.head.workspace or {})["at"]
            place = Place(*at)
            assert (folder / ".host").exists()
            assert await presence.is_worked_at(place)
            one.kill()
            await one.wait()
        ticks[0] = 20.0
        assert await presence.is_worked_at(place)
        ticks[0] = 51.0
        assert not await presence.is_worked_at(place)


async def test_bound_mode_keeps_own_directories_where_they_are(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """With `bound`, nothing of files goes to the store, and a session's own directory is its machine's too (B61)."""
    async with machine(url, tmp_path / "a", workspaces_mode="bound") as one:
        await done(manager, write("a.txt", "one"), chat="own")
        session = await manager.get_or_create("test:own")
        await session.refresh()
        record = session.head.workspace or {}
        assert record["place"][0] == one.placing.host.id
        assert "saved" not in record
    async with machine(url, tmp_path / "b", bound_wait_s=0.5, workspaces_mode="bound"):
        assert "host_bound" in str(outcome(await done(manager, read("a.txt"), chat="own")).error)


async def test_shared_directory_is_everybodys_who_sees_it(url: str, manager: SessionManager, tmp_path: Path) -> None:
    """Every machine goes on in the shared directory, checkpoints too; one that has another there is refused (B61)."""
    root = tmp_path / "mount"
    root.mkdir()
    shared: dict[str, Any] = {"workspaces_mode": "shared", "workspaces_root": root}
    async with machine(url, tmp_path / "a", **shared) as one:
        await done(manager, write("a.txt", "one\n"), chat="shared")
        assert one.placing.base == root
    async with machine(url, tmp_path / "b", **shared):
        events = await done(manager, read("a.txt"), shell("echo two > a.txt"), chat="shared")
        assert "one" in results(events)[0]
        session = await manager.get_or_create("test:shared")
        assert (root / session.session_id / "a.txt").read_text() == "two\n"
    other = tmp_path / "not_mounted"
    other.mkdir()
    with pytest.raises(SharedRootError):
        async with machine(url, tmp_path / "c", workspaces_mode="shared", workspaces_root=other):
            pass
    async with machine(url, tmp_path / "d", bound_wait_s=0.5):  # it keeps files in the store, and does not see these
        assert "shared directory" in str(outcome(await done(manager, read("a.txt"), chat="shared")).error)
    (root / ".kipu-shared").rename(root / "away")
    with pytest.raises(SharedRootError):
        async with machine(url, tmp_path / "a", **shared):
            pass


async def test_mount_that_goes_away_holds_turns_back_until_it_is_there_again(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """No turn works on the empty folder below a mount that is gone; it runs when the mount is back (B61)."""
    root = tmp_path / "mount"
    root.mkdir()
    async with machine(url, tmp_path / "a", workspaces_mode="shared", workspaces_root=root) as run:
        await done(manager, write("a.txt", "one\n"), chat="gone")
        session = await manager.get_or_create("test:gone")
        await session.refresh()
        after = session.head.last_seq
        root.rename(tmp_path / "unmounted")
        root.mkdir()
        await say(manager, read("a.txt"), chat="gone")
        await run.worker.sweep()
        await run.worker.until_idle()
        head = await manager.store.head(session.session_id)
        assert head is not None
        assert head.waiting
        assert not any(root.iterdir())
        root.rmdir()
        (tmp_path / "unmounted").rename(root)
        events = await ended(session, after=after)
        assert "one" in results(events)[0]
        assert isinstance(events[-1], TurnFinishedEvent)


async def test_two_folders_are_two_machines_and_one_is_one(tmp_path: Path) -> None:
    """A machine is known by the mark in its folder, whoever makes it first (B61)."""
    many = [Placing("bound", folder=tmp_path / "a") for _ in range(8)]
    hosts = await asyncio.gather(*(asyncio.to_thread(getattr, each, "host") for each in many))
    assert len(set(hosts)) == 1
    assert Placing("bound", folder=tmp_path / "b").host != hosts[0]


async def test_directory_chosen_while_a_turn_runs_stays_chosen(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """What a turn keeps of its files at its end does not take back another choice that was made meanwhile (B41, B61)."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "here.txt").write_text("here")
    async with machine(url, tmp_path / "a") as run:
        session = await run.manager.get_or_create("test:meanwhile")
        folder = run.placing.base / session.session_id
        held = shell("touch begun; until test -e go; do sleep 0.05; done; echo more > more.txt")
        await say(run.manager, write("a.txt", "one"), held, chat="meanwhile")
        async with asyncio.timeout(60):
            async for event in session.follow(after=0):
                if isinstance(event, ToolStartedEvent) and (folder / "a.txt").exists():
                    break
        await chosen(run, project, chat="meanwhile")
        (folder / "go").touch()
        await ended(session, after=0)
        await session.refresh()
        assert (session.head.workspace or {})["path"] == str(project)
        assert "here" in results(await done(run.manager, read("here.txt"), chat="meanwhile"))[0]
