"""Which directory a session works in, by its record: made, found again, given to a fork, or brought here (B41, C11, B61)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kipu.errors import WorkspaceMissingError
from kipu.events.boundary import MetadataChangedEvent, NoteEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.turns.tool_execution import Checkpoint
from kipu.runtime.turns.turn_run import TurnRun
from kipu.runtime.workspaces.carried import CARRIED_LIMITS, MOVED_NOTE, CarriedFiles, LocalCopies
from kipu.runtime.workspaces.checkpoints import (
    SAVED,
    CheckpointRecorder,
    blobs_into,
    checkpoint_after,
    fork_files,
    latest_checkpoint,
    open_recorder,
)
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.manifest import get_manifest
from kipu.runtime.workspaces.place import Place, Placing
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.runtime.workspaces.record import WorkspaceRecord
from kipu.runtime.workspaces.snapshot import SnapshotLimits
from kipu.session.patch import WORKSPACE
from kipu.session.turn_story import OpenCall

_RECENT_EVENTS = 500
_LOCK_WAIT_S = 5.0


class SessionWorkspaces:
    """Open the directories of sessions, and keep with each session what was found or made."""

    def __init__(
        self, manager: SessionManager, provision: WorkspaceProvision, *, limits: SnapshotLimits = CARRIED_LIMITS
    ) -> None:
        self._manager = manager
        self.provision = provision
        self.placing = provision.placing or Placing("local", folder=provision.base)
        self.copies = LocalCopies(provision.base, manager.store.describe().url)
        self._limits = limits

    async def open(self, session: Session) -> LocalWorkspace:
        """Return the session's directory: its own private one where its head names none, a fork's own, a moved one found again.

        One that is kept in the store is laid out here where this machine's copy is not the newest.
        Raises: WorkspaceMissingError (a chosen directory is gone), HostBoundError, SharedRootError, WorkspaceError, GitError.
        """
        record = session.head.workspace
        await asyncio.to_thread(self.placing.require, record)
        if self._is_carried(session, record):
            async with _held(session):
                return await self._open_carried(session)
        workspace = await self._open_here(session, record)
        await asyncio.to_thread(self._place, workspace, session.session_id)
        if workspace.describe() != record:
            await self._add(session, [_named(workspace.record)])
        return workspace

    async def _open_here(self, session: Session, record: Mapping[str, Any] | None) -> LocalWorkspace:
        if not record:
            return await self.provision.private(session.session_id)
        if session.head.forked_from and record.get("session_id") != session.session_id:
            return await self._for_fork(session, record)
        if record.get("kind") == "directory":
            workspace = await self.provision.open(record)
            if await workspace.state() == "missing":
                raise WorkspaceMissingError(root=str(workspace.root))
            return workspace
        return await self.provision.bring_back(record)

    def _place(self, workspace: LocalWorkspace, session_id: str) -> None:
        """Note what the files are bound to, where that is asked here and was not noted, and who has them in use."""
        record = workspace.record
        if self.placing.mode == "local":
            return
        if self.placing.mode == "bound" and record.kind == "private" and record.session_id == session_id:
            self.copies.note(session_id)  # so that it goes when the session was erased elsewhere
        place = record.place or self.placing.place_of(record.kind, record.path)
        workspace.record = replace(record, place=place, at=self.placing.host if self.placing.shared else None)

    # ---- kept in the store -----------------------------------------------------------------------------------------

    def _is_carried(self, session: Session, record: Mapping[str, Any] | None) -> bool:
        """Return True where the files are, or are to be, in the store: the session's own ones, and no helper's of theirs."""
        if not record:
            return self.placing.mode == "stored"
        is_own = record.get("session_id") == session.session_id or bool(session.head.forked_from)
        is_kept = "at" in record and "place" not in record
        return record.get("kind") == "private" and is_own and (self.placing.mode == "stored" or is_kept)

    async def _open_carried(self, session: Session) -> LocalWorkspace:
        await session.refresh()
        before = WorkspaceRecord.from_json(session.head.workspace) if session.head.workspace else None
        path = self.provision.base / session.session_id
        was_there = await asyncio.to_thread(path.is_dir)
        workspace = await self.provision.private(session.session_id)
        carried = await self._carried(session, workspace)
        if before is None:
            return await self._settled(session, carried)
        if before.session_id != session.session_id:
            await self._lay_out_fork(session, carried, parent_record=before)
        else:
            workspace.record = replace(before, path=workspace.record.path, identity=workspace.record.identity)
            await self._bring(session, carried, before=before, was_there=was_there)
        return await self._settled(session, carried)

    async def _bring(
        self, session: Session, carried: CarriedFiles, *, before: WorkspaceRecord, was_there: bool
    ) -> None:
        """Lay out what is kept, unless the copy here comes from it and nobody else has gone on since."""
        host, session_id = self.placing.host, session.session_id
        is_living = was_there and (before.at.id == host.id if before.at else _is_same(before, carried.workspace))
        read = partial(session.blob, principal=owner_of(session.head))
        if before.saved is not None:
            is_newest = before.saved in await asyncio.to_thread(self.copies.of, session_id)
            if is_living and is_newest:
                await carried.know(before.saved, read)
                return
            await carried.lay_out(before.saved, read)
        elif not is_living:
            await self._lay_out_checkpoint(session, carried.workspace)
        if before.at is not None and before.at.id != host.id:
            carried.came_from = before.at.name
            data = {"from": before.at.name, "to": host.name, "left_behind": carried.left_behind()[:50]}
            await self._add(session, [NoteEvent(kind=MOVED_NOTE, data=data)])

    async def _lay_out_checkpoint(self, session: Session, workspace: LocalWorkspace) -> None:
        """Bring back what the last checkpoint knows, where nothing else is known: of before files were kept in the store."""
        owner = owner_of(session.head)
        digest = latest_checkpoint(await session.get_recent_events(_RECENT_EVENTS, principal=owner))
        if digest is not None:
            read = partial(session.blob, principal=owner)
            await workspace.restore(await get_manifest(digest, read), read)

    async def _lay_out_fork(self, session: Session, carried: CarriedFiles, *, parent_record: WorkspaceRecord) -> None:
        """Give a fork the files of its point, from what is kept of its parent's; from the parent's own where none are kept."""
        owner = owner_of(session.head)
        parent = await self._manager.open(str(session.head.forked_from), principal=owner)
        await parent.refresh()
        if (parent.head.workspace or {}).get(
            "session_id"
        ) != parent.session_id:  # itself a fork that has none of its own yet
            await self.open(parent)
        at = session.head.base_seq
        note = await checkpoint_after(parent.events(after=at, principal=owner), at)
        saved = note.data.get(SAVED) if note is not None else (parent.head.workspace or {}).get("saved")
        if saved is not None:
            await carried.lay_out(saved, partial(parent.blob, principal=owner))
            carried.forget()
            return
        if "at" in (parent.head.workspace or {}) and note is None:
            return  # it has no files
        await asyncio.to_thread(self.placing.require, parent.head.workspace)
        await self._copy_for_fork(session, carried.workspace, parent=parent, record=parent_record)

    async def _carried(self, session: Session, workspace: LocalWorkspace) -> CarriedFiles:
        workspace.carried = CarriedFiles(
            workspace,
            session_id=session.session_id,
            copies=self.copies,
            host=await asyncio.to_thread(lambda: self.placing.host),
            put_blob=blobs_into(self._manager.store, session.session_id),
            is_in_use=lambda: (session.head.workspace or {}).get("kind", "private") == "private",
            limits=self._limits,
        )
        return workspace.carried

    async def _settled(self, session: Session, carried: CarriedFiles) -> LocalWorkspace:
        """Return the workspace; where files are not kept in the store any more, they stay here from now on."""
        workspace = carried.workspace
        if self.placing.mode == "stored":
            await carried.keep(partial(self._add, session))
            return workspace
        workspace.carried = None
        workspace.record = replace(workspace.record, at=None, saved=None, seen=None, bound=None, place=None)
        await asyncio.to_thread(self._place, workspace, session.session_id)
        await self._add(session, [_named(workspace.record)])
        return workspace

    # ---- forks -----------------------------------------------------------------------------------------------------

    async def _for_fork(self, session: Session, record: Mapping[str, Any]) -> LocalWorkspace:
        """Give a fork files of its own, as they were at the fork's point; only after that its record says that they are."""
        workspace = await self.provision.for_fork(record, session.session_id)
        if workspace.kind == "directory" or session.head.forked_from is None:
            return workspace  # a chosen directory stays the one that was chosen
        parent = await self._manager.open(session.head.forked_from, principal=owner_of(session.head))
        await self._copy_for_fork(session, workspace, parent=parent, record=record)
        return workspace

    async def _copy_for_fork(
        self,
        session: Session,
        workspace: LocalWorkspace,
        *,
        parent: Session,
        record: WorkspaceRecord | Mapping[str, Any],
    ) -> None:
        recorder = await self.recorder(parent, await self.provision.open(record))
        with suppress(WorkspaceMissingError):  # the parent's files are gone: the fork begins without them
            await fork_files(parent, session, recorder=recorder, workspace=workspace, principal=owner_of(session.head))

    # ---- looking, and checkpoints ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def looked_at(self, session: Session) -> AsyncIterator[LocalWorkspace]:
        """Give the session's files to look at only: where another machine has them, a copy of what is kept, which goes again."""
        await session.refresh()
        record = session.head.workspace or {}
        saved, at = record.get("saved"), Place.from_json(record.get("at"))
        host = await asyncio.to_thread(lambda: self.placing.host) if saved and at else None
        if host is None or saved is None or at is None or at.id == host.id:
            workspace = await self.open(session)
            try:
                yield workspace
            finally:
                await workspace.aclose()
            return
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="kipu-look-"))
        try:
            looked = LocalWorkspace(WorkspaceRecord("private", str(folder), session.session_id))
            read = partial(session.blob, principal=owner_of(session.head))
            copies = LocalCopies(folder.with_name(f"{folder.name}.none"))
            carried = CarriedFiles(looked, session_id="", copies=copies, host=host, put_blob=_keep_nothing)
            await carried.lay_out(saved, read)
            yield looked
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def recorder(self, session: Session, workspace: LocalWorkspace) -> CheckpointRecorder:
        """Return what records the session's checkpoints."""
        return await open_recorder(session, workspace, store=self._manager.store, principal=owner_of(session.head))

    async def checkpoint(self, session: Session, workspace: LocalWorkspace) -> Checkpoint:
        """Return what keeps the files before a call changes them, within the turn that runs."""
        recorder = await self.recorder(session, workspace)

        async def record(run: TurnRun, call: OpenCall) -> None:
            async def append(events: Sequence[SessionEvent]) -> Sequence[SessionEvent]:
                return await run.add(*events)

            recorder.append = append
            await recorder.record(turn_id=run.turn.id, call_id=call.id)

        return record

    async def _add(self, session: Session, events: Sequence[SessionEvent]) -> Sequence[SessionEvent]:
        token = session.lock.token if session.lock.mine else None
        return await session.add_events(events, principal=owner_of(session.head), token=token)


@asynccontextmanager
async def _held(session: Session) -> AsyncIterator[None]:
    """Hold the session's lock; whoever builds its agent outside of a turn waits for none that runs, which may wait for the agent."""
    if session.lock.mine:
        yield
        return
    await session.lock.acquire(wait_s=_LOCK_WAIT_S)
    try:
        yield
    finally:
        await session.lock.release()


def _named(record: WorkspaceRecord) -> MetadataChangedEvent:
    return MetadataChangedEvent(set={WORKSPACE: record.to_json()})


def _is_same(record: WorkspaceRecord, workspace: LocalWorkspace) -> bool:
    """Return True where the directory of a record of before is the very one that is here."""
    return record.identity is not None and record.identity.matches(workspace.record.identity)


async def _keep_nothing(data: bytes) -> str:
    raise WorkspaceMissingError(root=f"a copy that is looked at only ({len(data)} bytes)")
