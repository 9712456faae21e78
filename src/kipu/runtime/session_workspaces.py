"""Which directory a session works in, by its record: made, found again, or given to a fork (B41, C11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kipu.errors import WorkspaceMissingError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import owner_of
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.turns.tool_execution import Checkpoint
from kipu.runtime.turns.turn_run import TurnRun
from kipu.runtime.workspaces.checkpoints import CheckpointRecorder, fork_files, open_recorder
from kipu.runtime.workspaces.local import LocalWorkspace
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.session.patch import WORKSPACE
from kipu.session.turn_story import OpenCall


class SessionWorkspaces:
    """Open the directories of sessions, and keep with each session what was found or made."""

    def __init__(self, manager: SessionManager, provision: WorkspaceProvision) -> None:
        self._manager = manager
        self.provision = provision

    async def open(self, session: Session) -> LocalWorkspace:
        """Return the session's directory: its own private one where its head names none, a fork's own, a moved one found again.

        Raises: WorkspaceMissingError (a chosen directory is gone), WorkspaceError, GitError.
        """
        head = session.head
        record = head.workspace
        if not record:
            workspace = await self.provision.private(session.session_id)
        elif head.forked_from and record.get("session_id") != session.session_id:
            workspace = await self._for_fork(session, record)
        elif record.get("kind") == "directory":
            workspace = await self.provision.open(record)
            if await workspace.state() == "missing":
                raise WorkspaceMissingError(root=str(workspace.root))
        else:
            workspace = await self.provision.bring_back(record)
        if workspace.describe() != record:
            changed = MetadataChangedEvent(set={WORKSPACE: workspace.describe()})
            await session.add_event(changed, principal=owner_of(session.head))
        return workspace

    async def _for_fork(self, session: Session, record: Mapping[str, Any]) -> LocalWorkspace:
        """Give a fork files of its own, as they were at the fork's point; only after that its record says that they are."""
        workspace = await self.provision.for_fork(record, session.session_id)
        if workspace.kind == "directory" or session.head.forked_from is None:
            return workspace  # a chosen directory stays the one that was chosen
        owner = owner_of(session.head)
        parent = await self._manager.open(session.head.forked_from, principal=owner)
        recorder = await self.recorder(parent, await self.provision.open(record))
        with suppress(WorkspaceMissingError):  # the parent's files are gone: the fork begins without them
            await fork_files(parent, session, recorder=recorder, workspace=workspace, principal=owner)
        return workspace

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
