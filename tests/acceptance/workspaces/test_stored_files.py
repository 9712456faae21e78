"""Files of sessions that are kept in the store: whichever machine takes the next turn has them (B61)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import LeaseLostError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import ToolResultEvent, ToolStartedEvent
from kipu.events.turn import TurnParkedEvent
from kipu.manager.manager import SessionManager
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.runtime import Runtime
from kipu.runtime.workspaces.carried import BOUND_NOTE, MOVED_NOTE
from kipu.runtime.workspaces.checkpoints import diff_since, undo
from kipu.wiring import open_manager
from tests.acceptance.workspaces.machines import Call, done, ended, machine, outcome, process, results, say
from tests.servers import fresh_schema, postgres_url


def write(path: str, content: str) -> Call:
    return "write_file", {"path": path, "content": content}


def shell(command: str, **more: Any) -> Call:
    return "shell", {"command": command, **more}


def read(path: str) -> Call:
    return "read_file", {"path": path}


@pytest.fixture(scope="module")
def url() -> str:
    """Return a PostgreSQL store: there, files are kept in the store unless something else is set."""
    return fresh_schema(postgres_url())


@pytest.fixture
async def manager(url: str) -> AsyncIterator[SessionManager]:
    """Give a manager of somebody who sends messages and runs nothing."""
    async with await open_manager(url) as opened:
        yield opened


async def test_files_are_there_for_the_next_turn_on_another_machine(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """What a killed machine's turn made, links, modes and empty folders too, another's reads and edits, and back (B61)."""
    first, second = tmp_path / "a", tmp_path / "b"
    async with process(url, first) as one:
        made = "mkdir empty; ln -s src/a.txt link; chmod 755 src/a.txt; git init -q .; echo x > .env; echo .env > .gitignore"
        await done(manager, write("src/a.txt", "one\n"), shell(made), chat="moves")
        one.kill()
        await one.wait()
    async with process(url, second):
        edit = ("edit_file", {"path": "src/a.txt", "edits": [{"old_text": "one", "new_text": "two"}]})
        looked = shell("stat -c %a src/a.txt; readlink link; ls -d empty .git .env; rm link; rmdir empty")
        events = await done(manager, read("src/a.txt"), edit, looked, chat="moves")
        assert "one" in results(events)[0]
        assert "755\nsrc/a.txt\n.env\n.git\nempty" in results(events)[2], results(events)
        assert any(isinstance(event, NoteEvent) and event.kind == MOVED_NOTE for event in events)
    async with process(url, first):
        events = await done(manager, read("src/a.txt"), shell("ls -A"), chat="moves")
        assert "two" in results(events)[0]
        assert results(events)[1].endswith("\n.env\n.git\n.gitignore\nsrc\n"), results(events)


async def test_turn_killed_in_the_middle_goes_on_with_the_files_before_its_interrupted_call(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """Files of finished calls are there, those of the interrupted one are not, and its result says so (B61, C14)."""
    async with process(url, tmp_path / "a") as one:
        before = (await manager.get_or_create("test:killed")).history.last_seq
        kept = shell("git init -q .; echo .ignored > .gitignore; echo kept > .ignored; echo kept > kept.txt")
        session = await say(manager, kept, shell("echo half > lost.txt; sleep 600"), shell("ls -A"), chat="killed")
        async with asyncio.timeout(60):
            started = 0
            async for event in session.follow(after=before):
                started += isinstance(event, ToolStartedEvent)
                if started == 2:
                    break
            lost = list((tmp_path / "a").rglob("lost.txt"))
            while not lost:
                await asyncio.sleep(0.02)
                lost = list((tmp_path / "a").rglob("lost.txt"))
        one.kill()
        await one.wait()
    async with process(url, tmp_path / "b"):
        events = await ended(session, after=before)
    found = [event for event in events if isinstance(event, ToolResultEvent)]
    assert found[1].synthetic == "interrupted"
    assert "another machine" in str(found[1].result)
    assert ".git\n.gitignore\n.ignored\nkept.txt\n" in str(found[2].result)  # also what no checkpoint holds
    assert "lost.txt" not in str(found[2].result)
    assert outcome(events).outcome == "completed"


async def test_parked_turn_goes_on_elsewhere_with_its_files(url: str, manager: SessionManager, tmp_path: Path) -> None:
    """A call that a person allows is run by another machine, on the files as the turn left them (B61, C15)."""
    async with machine(url, tmp_path / "a", asks=["edit_file"]):
        edit = ("edit_file", {"path": "a.txt", "edits": [{"old_text": "one", "new_text": "two"}]})
        events = await done(manager, write("a.txt", "one\n"), shell("echo more > b.txt"), edit, chat="parked")
        assert isinstance(events[-1], TurnParkedEvent)
    session = await manager.get_or_create("test:parked")
    await session.refresh()
    async with machine(url, tmp_path / "b", asks=["edit_file"]):
        desk = ApprovalDesk(manager)
        (pending,) = await desk.pending(session_id=session.session_id)
        after = session.history.last_seq
        await desk.approve(pending.approval_id)
        await ended(session, after=after)
        events = await done(manager, shell("cat a.txt b.txt"), chat="parked")
    assert "two\nmore" in results(events)[-1]


async def test_undo_diff_and_fork_work_on_another_machine(url: str, manager: SessionManager, tmp_path: Path) -> None:
    """A machine that never had the files takes a turn back with them, says what differs, and runs a fork (B61, C11)."""
    async with machine(url, tmp_path / "a"):
        await done(manager, write("a.txt", "one\n"), chat="undone")
        session = await manager.get_or_create("test:undone")
        await session.refresh()
        at = session.history.last_seq
        await done(manager, shell("echo two > a.txt; echo more > b.txt"), chat="undone")
    async with machine(url, tmp_path / "b", accepts=lambda _session_id: False) as run:
        places = run.builder.workspaces
        session = await run.manager.open(session.session_id)
        async with places.looked_at(session) as looked:
            text = await diff_since(session, looked, to_seq=at)
            assert "+two" in text
            assert "b/b.txt" in text
        await session.refresh()
        assert (session.head.workspace or {})["at"][0] != places.placing.host.id  # looking takes nothing over
        fork = await session.fork(at)
        workspace = await places.open(session)
        undone = await undo(session, workspace, recorder=await places.recorder(session, workspace))
        assert undone.paths == ["a.txt", "b.txt"]
        assert workspace.files.read("a.txt") == b"one\n"
        assert (await places.open(fork)).files.read("a.txt") == b"one\n"
    async with machine(url, tmp_path / "c") as run:
        assert "one" in results(await done(run.manager, shell("cat a.txt; ls"), chat="undone"))[0]


async def test_frozen_workers_files_are_nobodys(url: str, tmp_path: Path) -> None:
    """What a worker keeps that lost its lease is refused by the store, and its copy is laid out anew (B61, C3)."""
    async with (
        machine(url, tmp_path / "a", accepts=lambda _session_id: False) as one,
        machine(url, tmp_path / "b", accepts=lambda _session_id: False) as two,
    ):
        mine = await one.manager.get_or_create("test:frozen")
        async with mine.holding():
            workspace = await one.builder.workspaces.open(mine)
            workspace.files.write("a.txt", b"good")
            assert workspace.carried is not None
            await workspace.carried.keep(lambda events: mine.add_events(events, token=mine.lock.token))
            token = mine.lock.token
        theirs = await two.manager.open(mine.session_id)
        await two.builder.workspaces.open(theirs)
        workspace.files.write("a.txt", b"of a worker that was frozen")
        with pytest.raises(LeaseLostError):
            await workspace.carried.keep(lambda events: mine.add_events(events, token=token))
        await mine.refresh()
        again = await one.builder.workspaces.open(mine)
        assert again.files.read("a.txt") == b"good"


async def test_too_large_files_bind_the_session_to_its_machine_until_there_is_less(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """The turn goes on, a note says why no other machine gets the next one, and it ends with the cause (B61)."""
    big = shell("head -c 65000000 /dev/zero > big.bin; echo made")
    async with machine(url, tmp_path / "a"):
        events = await done(manager, write("a.txt", "one\n"), big, chat="big")
        assert outcome(events).outcome == "completed"
        (note,) = [e for e in events if isinstance(e, NoteEvent) and e.kind == BOUND_NOTE]
        assert "big.bin" in note.data["reason"]
        assert note.data["error"] == "workspace_too_large"
        session = await manager.get_or_create("test:big")
        await session.refresh()
        assert (session.head.workspace or {})["place"] == (session.head.workspace or {})["at"]
        await done(manager, shell("rm big.bin"), chat="big")
        await session.refresh()
        assert "place" not in (session.head.workspace or {})
    async with machine(url, tmp_path / "b"):
        assert "one" in results(await done(manager, read("a.txt"), chat="big"))[0]


async def test_helper_goes_on_where_its_parents_files_are(url: str, manager: SessionManager, tmp_path: Path) -> None:
    """A helper works in its parent's files, on whichever machine the parent's turn runs, and they move on with it (B61)."""
    task = '[["write_file", {"path": "by_helper.txt", "content": "helped"}]]'
    async with machine(url, tmp_path / "a"):
        await done(manager, ("delegate", {"task": task}), chat="helped")
    async with machine(url, tmp_path / "b"):
        again = '[["read_file", {"path": "by_helper.txt"}]]'
        events = await done(manager, ("delegate", {"task": again}), chat="helped")
        assert "helped" in results(events)[0], results(events)


async def test_background_processes_end_where_another_machine_goes_on(
    url: str, manager: SessionManager, tmp_path: Path
) -> None:
    """A process in the background ends with the agent that another machine's turn makes an old one, and the model is told (B49, B61)."""
    one = machine(url, tmp_path / "a", accepts=None)
    async with one as first:
        begun = shell(f"exec sleep 98765.{tmp_path.name[-1]}", background=True)
        events = await done(manager, begun, chat="background")
        session_id = (await manager.get_or_create("test:background")).session_id
        assert len(first.orchestrator) == 1
        await _hand_over(first, session_id)
        async with machine(url, tmp_path / "b"):
            told = ("process_output", {"process_id": "1"})
            events = await done(manager, told, chat="background")
            assert "end with" in results(events)[0], results(events)
        await first.orchestrator.close_erased()
        assert len(first.orchestrator) == 0


async def _hand_over(run: Runtime, session_id: str) -> None:
    """Have this machine take no turn any more, while what its agents hold lives on."""
    await run.worker.drain(timeout_s=5.0)
    assert session_id not in run.worker.running
