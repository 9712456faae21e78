"""Checkpoints in real sessions: what files were before each change, and the way back with the log."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kipu import open_manager
from kipu.errors import InputError, WorkspaceMissingError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    ToolStartedEvent,
    UserMessageEvent,
)
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.workspaces.checkpoints import (
    CHECKPOINT,
    RESTORED,
    CheckpointRecorder,
    blobs_into,
    checkpoint_before_call,
    diff_since,
    find_checkpoint,
    first_checkpoint_of_turn,
    fork_files,
    latest_checkpoint,
    open_recorder,
    record_checkpoint,
    restore_files,
    undo,
)
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.manifest import Manifest, digest_of, get_manifest, put_manifest
from kipu.runtime.workspaces.provision import WorkspaceProvision

Files = dict[str, str]


@dataclass
class Work:
    """A session with a workspace, and turns whose tools change files as told."""

    manager: SessionManager
    session: Session
    workspace: LocalWorkspace
    recorder: CheckpointRecorder

    async def turn(self, text: str, *changes: Files) -> int:
        """Run one turn with one call for each of `changes`, and return the seq of its last event."""
        await self.session.add_event(UserMessageEvent(content=text, queued=True))
        async with self.session.turn() as turn:
            for number, change in enumerate(changes):
                await self._call(turn, f"{text}-{number}", change)
            await turn.add_events([AgentMessageEvent(content="done")])
        return self.session.head.last_seq

    async def _call(self, turn: Any, call_id: str, change: Files) -> None:
        await turn.add_events(
            [AgentMessageEvent(content=""), ToolCallEvent(tool_name="write_file", tool_call_id=call_id)]
        )
        await self.recorder.record(turn_id=turn.id, call_id=call_id)
        await turn.add_events([ToolStartedEvent(tool_call_id=call_id)])
        for path, data in change.items():
            await asyncio.to_thread(self.workspace.files.write, path, data.encode())
        await turn.add_events([ToolResultEvent(tool_call_id=call_id, result="written")])

    def read(self) -> Files:
        return {entry.path: self.workspace.files.read(entry.path).decode() for entry in self.workspace.files.list()}

    async def notes(self, kind: str = CHECKPOINT) -> list[NoteEvent]:
        events = await self.session.get_full_history()
        return [event for event in events if isinstance(event, NoteEvent) and event.kind == kind]


@pytest.fixture(params=["memory://", "sqlite"])
async def work(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Work]:
    url = request.param if request.param == "memory://" else f"sqlite:///{tmp_path}/sessions.db"
    async with await open_manager(url) as manager:
        session = await manager.open(await manager.create_session())
        workspace = await WorkspaceProvision(tmp_path / "workspaces").private(session.session_id)
        yield Work(manager, session, workspace, await open_recorder(session, workspace, store=manager.store))


async def test_undo_takes_back_the_conversation_and_the_files(work: Work) -> None:
    """After an undo files and window are as before the turn, the log has it all, and a second one goes a turn further (C11, A26)."""
    await work.turn("one", {"a": "1"})
    before = await work.session.get_context_for_llm()
    await work.turn("two", {"a": "2", "b": "2"}, {"b": "3"})
    undone = await undo(work.session, work.workspace, recorder=work.recorder)
    assert work.read() == {"a": "1"}
    assert undone.paths == ["a", "b"]
    assert await work.session.get_context_for_llm() == before
    assert [note.data["files"] for note in await work.notes(RESTORED)] == [2]
    undone = await undo(work.session, work.workspace, recorder=work.recorder)
    assert work.read() == {}
    assert undone.paths == ["a"]
    assert any(event.event_type == "tool_result" for event in await work.session.get_full_history())


async def test_files_go_back_to_any_turn_boundary(work: Work) -> None:
    """For every boundary of a session the files come back as they were then, in any order, also forwards again (C11)."""
    states: dict[int, Files] = {}
    changes: list[tuple[Files, ...]] = [
        ({"a": "1"}, {"b": "1"}),
        (),
        ({"a": "1"}, {"a": "1"}, {"c": "3"}),
        ({"c": "3"},),  # changes nothing: the first look of the next turn finds what this one's did
        ({"b": "4"},),
        ({"b": "4"}, {"a": "5"}),
    ]
    for number, calls in enumerate(changes):
        seq = await work.turn(f"turn{number}", *calls)
        states[seq] = work.read()
    for seq in [*sorted(states)[::-1], *sorted(states)]:
        await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=seq)
        assert work.read() == states[seq]


async def test_files_restored_can_be_gone_back_from(work: Work) -> None:
    """What the files were before they were restored is a checkpoint too: nothing is lost by going back (A26)."""
    first = await work.turn("one", {"a": "1"})
    last = await work.turn("two", {"a": "2"})
    work.workspace.files.write("mine", b"written by a person")
    await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=first)
    assert work.read() == {"a": "1"}
    await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=last)
    assert work.read() == {"a": "2", "mine": "written by a person"}


async def test_files_go_back_to_a_boundary_between_two_restorations(work: Work) -> None:
    """Each restoration has a checkpoint of its own, also when nothing had changed since the last one (C11)."""
    first = await work.turn("one", {"a": "1"})
    second = await work.turn("two", {"a": "2"})
    work.workspace.files.write("a", b"1")
    await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=first)
    between = await work.turn("talk")
    await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=second)
    assert work.read() == {"a": "1"}  # as it was when the first restoration, the first look after `second`, began
    await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=0)
    assert work.read() == {}
    await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=between)
    assert work.read() == {"a": "1"}


async def test_checkpoint_is_left_out_when_nothing_changed_in_the_turn(work: Work) -> None:
    """A turn's first call makes a note, later ones only after a change; the note names call, turn and number of files (A73)."""
    await work.turn("one", {"a": "1"}, {"a": "1"}, {"a": "2"}, {})
    notes = await work.notes()
    assert [(note.data["call_id"], note.data["files"]) for note in notes] == [("one-0", 0), ("one-1", 1), ("one-3", 1)]
    assert len({note.data["turn_id"] for note in notes}) == 1
    assert all(note.data["turn_id"] for note in notes)
    await work.turn("two", {}, {})
    assert [note.data["call_id"] for note in await work.notes()][3:] == ["two-0"]
    events = await work.session.get_full_history()
    assert checkpoint_before_call(events, "one-2") == notes[1].data["manifest"]
    assert checkpoint_before_call(events, "one-3") == notes[2].data["manifest"]
    assert checkpoint_before_call(events, "none") is None
    assert latest_checkpoint(events) == notes[2].data["manifest"]
    assert first_checkpoint_of_turn(events, notes[0].data["turn_id"]) == notes[0].data["manifest"]
    assert find_checkpoint(events, events[-1].seq) is None


async def test_checkpoints_of_calls_at_once_are_taken_one_after_another(work: Work) -> None:
    """Two calls of one turn that begin at once make one note when nothing changed between them (C2)."""
    work.workspace.files.write("a", b"1")
    made = await asyncio.gather(*(work.recorder.record(turn_id="t", call_id=f"c{number}") for number in range(4)))
    assert [note is not None for note in made].count(True) == 1
    assert len(await work.notes()) == 1


async def test_checkpoint_is_found_by_another_process(work: Work, tmp_path: Path) -> None:
    """What one worker recorded, another that knows nothing of it brings back from the store alone (A26, B41)."""
    if work.manager.store.describe().url.startswith("memory"):
        pytest.skip("a memory store is one process")
    await work.turn("one", {"a": "1"})
    await work.turn("two", {"a": "2"})
    async with await open_manager(f"sqlite:///{tmp_path}/sessions.db") as manager:
        session = await manager.open(work.session.session_id)
        workspace = await WorkspaceProvision(tmp_path / "elsewhere").open(work.workspace.describe())
        await undo(session, workspace, recorder=await open_recorder(session, workspace, store=manager.store))
    assert work.read() == {"a": "1"}


async def test_checkpoint_after_a_restart_keeps_only_what_changed(work: Work, tmp_path: Path) -> None:
    """A new process takes the contents that the newest checkpoint holds for kept (C11)."""
    for number in range(50):
        (work.workspace.root / f"f{number}").write_text(f"content {number}")
    await work.recorder.record(turn_id="t")
    store, session_id = work.manager.store, work.session.session_id
    before = set(await store.blobs(session_id))
    workspace = await WorkspaceProvision(tmp_path / "workspaces").open(work.workspace.describe())
    recorder = await open_recorder(work.session, workspace, store=store)
    (workspace.root / "f7").write_text("changed")
    note = await recorder.record(turn_id="t2")
    fresh = set(await store.blobs(session_id)) - before
    assert note is not None
    assert fresh == {digest_of(b"changed"), note.data["manifest"]}
    (workspace.root / "f7").unlink()
    (workspace.root / "f8").unlink()
    await workspace.restore(await get_manifest(note.data["manifest"], work.session.blob), work.session.blob)
    assert [(workspace.root / name).read_text() for name in ("f7", "f8")] == ["changed", "content 8"]


async def test_fork_restores_what_its_parent_recorded(work: Work, tmp_path: Path) -> None:
    """A fork reads the checkpoints of the events it shares, and brings them back in a directory of its own (C11, B41)."""
    first = await work.turn("one", {"a": "1"})
    await work.turn("two", {"a": "2"})
    child = await work.session.fork()
    workspace = await WorkspaceProvision(tmp_path / "workspaces").private(child.session_id)
    recorder = await open_recorder(child, workspace, store=work.manager.store)
    undone = await restore_files(child, workspace, recorder=recorder, to_seq=first)
    assert undone.paths == ["a"]
    assert workspace.files.read("a") == b"1"
    assert work.read() == {"a": "2"}


async def test_fork_has_the_files_of_its_point(work: Work, tmp_path: Path) -> None:
    """A fork from an earlier turn gets the files as they were then, one from the tip as they are, each its own (C11, B41)."""
    provision = WorkspaceProvision(tmp_path / "workspaces")
    first = await work.turn("one", {"a": "1"})
    await work.turn("two", {"a": "2", "b": "2"})
    found: list[Files] = []
    for seq in (first, None):
        child = await work.session.fork(seq)
        workspace = await provision.for_fork(work.workspace.describe(), child.session_id)
        await fork_files(work.session, child, recorder=work.recorder, workspace=workspace)
        found.append({entry.path: workspace.files.read(entry.path).decode() for entry in workspace.files.list()})
        workspace.files.write("a", b"of the fork")
    assert found == [{"a": "1"}, {"a": "2", "b": "2"}]
    assert work.read() == {"a": "2", "b": "2"}


async def test_undo_of_a_turn_that_changed_no_file_restores_none(work: Work) -> None:
    """Without a change since, files that a person edits are left alone, and no note is made (B41)."""
    await work.turn("one", {"a": "1"})
    await work.turn("two")
    work.workspace.files.write("a", b"by a person")
    undone = await undo(work.session, work.workspace, recorder=work.recorder)
    assert (undone.paths, undone.manifest) == ([], None)
    assert work.read() == {"a": "by a person"}
    assert await work.notes(RESTORED) == []


async def test_restore_is_refused_while_a_turn_is_open(work: Work) -> None:
    """Files are not taken from under a turn that may still change them (A39)."""
    await work.turn("one", {"a": "1"})
    async with work.session.turn(consumes=[]):
        with pytest.raises(InputError, match="stop it first"):
            await restore_files(work.session, work.workspace, recorder=work.recorder, to_seq=1)
    assert work.read() == {"a": "1"}


async def test_undo_goes_through_the_log_when_there_is_no_workspace(work: Work) -> None:
    """A session without files, or without the wish to restore them, is rewound alone (C11)."""
    await work.turn("one", {"a": "1"})
    undone = await undo(work.session, None)
    assert undone.rewind is not None
    assert work.read() == {"a": "1"}


async def test_diff_is_against_the_beginning_of_the_turn(work: Work) -> None:
    """What changed since a boundary is one unified diff (A73)."""
    first = await work.turn("one", {"a": "1\n"})
    assert await diff_since(work.session, work.workspace, to_seq=first) == ""
    await work.turn("two", {"a": "2\n"}, {"b": "new\n"})
    text = await diff_since(work.session, work.workspace, to_seq=first)
    assert "-1\n+2\n" in text
    assert "--- /dev/null\n+++ b/b\n" in text


async def test_checkpoint_of_a_missing_workspace_is_an_error_before_the_change(work: Work) -> None:
    """Where the directory is gone nothing is recorded, so that no empty state is restored later (B41)."""
    await work.turn("one", {"a": "1"})
    count = len(await work.notes())
    shutil.rmtree(work.workspace.root)
    with pytest.raises(WorkspaceMissingError):
        await work.recorder.record(turn_id="t")
    assert len(await work.notes()) == count


async def test_checkpoint_is_no_part_of_what_the_model_sees(work: Work) -> None:
    """Notes of files are kept in the log and shown to nobody's model (A3, C7)."""
    await work.turn("one", {"a": "1"})
    assert CHECKPOINT not in str(await work.session.get_context_for_llm())
    assert await record_checkpoint(
        work.session.add_events,
        work.workspace,
        put_blob=blobs_into(work.manager.store, work.session.session_id),
        turn_id=None,
    )


async def test_manifests_are_kept_as_what_differs_while_that_is_little(work: Work) -> None:
    """A manifest of many files costs little after the first, and reads back whole, also when much has changed (C11)."""
    sizes: list[int] = []

    async def put(data: bytes) -> str:
        sizes.append(len(data))
        return await work.manager.store.put_blob(work.session.session_id, data)

    for number in range(200):
        (work.workspace.root / f"f{number}").write_text(str(number))
    manifests = [
        Manifest.from_json(await work.workspace.snapshot(blobs_into(work.manager.store, work.session.session_id)))
    ]
    last = await put_manifest(manifests[0], put)
    for step in range(1, 60):
        (work.workspace.root / f"f{step}").unlink()
        (work.workspace.root / f"new{step}").write_text("x")
        manifests.append(Manifest.from_json((await work.workspace.take()).to_json()))
        last = await put_manifest(manifests[-1], put, last=last)
        read = Manifest.from_json(await get_manifest(last.digest, work.session.blob))
        assert read.to_json() == manifests[-1].to_json()
    assert sizes[1] < sizes[0] / 20
    assert sum(size > sizes[0] / 2 for size in sizes) == 3
