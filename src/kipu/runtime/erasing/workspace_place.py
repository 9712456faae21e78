"""Sessions' directories: private ones and worktrees that Kipu made go, what a user chose stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.errors import GitError, HostBoundError, KipuError, WorkspaceError
from kipu.events.boundary import MetadataChangedEvent
from kipu.manager.access import owner_of
from kipu.ports.erasure import Emptied, Facts
from kipu.ports.head import Head
from kipu.ports.store import EventStore
from kipu.runtime.session_workspaces import SessionWorkspaces
from kipu.runtime.workspaces.carried import LocalCopies
from kipu.runtime.workspaces.place import HOST_MARK, ROOT_MARK, Place, Placing, WorkspacesMode, read_mark
from kipu.runtime.workspaces.provision import WorkspaceProvision
from kipu.runtime.workspaces.removal import remove_tree
from kipu.session.patch import WORKSPACE

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager

CHOSEN = "workspace: a directory that a user chose"
COPIES = (
    "workspace: copies on other machines, which go within ten minutes while a worker runs there, or when one begins"
)
ELSEWHERE = "workspace: a worktree on another machine, to which the session was bound"
BRANCH = "workspace: the git branch kipu/<session id>, which has commits of its own"


class WorkspacePlace:
    """Empty sessions' directories below one folder. A branch with commits of its own is its repository's: it stays, and is named."""

    name = "workspace"

    def __init__(self, manager: SessionManager, provision: WorkspaceProvision) -> None:
        self._manager = manager
        self._provision = provision

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return the record of the directory, where it is the session's own."""
        record: dict[str, Any] = dict(head.workspace or {})
        kind = record.get("kind", "directory") if record else "private"
        if kind == "directory":
            return {"kind": kind}
        is_own = not record or record.get("session_id") == head.session_id
        return {"kind": kind, "record": record} if is_own else None

    async def settle_fork(self, head: Head) -> None:
        """Give a fork its own directory, as it would have got with its next turn; without one, it begins anew."""
        record = head.workspace or {}
        if not record or record.get("kind") == "directory" or record.get("session_id") == head.session_id:
            return
        owner = owner_of(head)
        session = await self._manager.open(head.session_id, principal=owner)
        try:
            workspace = await SessionWorkspaces(self._manager, self._placed(record)).open(session)
            await workspace.aclose()
        except HostBoundError:  # the machine that has the files gives it its own with its next turn
            return
        except (WorkspaceError, GitError, OSError):
            await session.add_event(MetadataChangedEvent(unset=[WORKSPACE]), principal=owner)

    def _placed(self, record: dict[str, Any]) -> WorkspaceProvision:
        """Return what opens a fork's files the way those of `record` are kept, whatever this process would choose."""
        if "place" not in record and "at" not in record:
            return self._provision
        mode: WorkspacesMode = "bound" if "place" in record else "stored"
        return replace(self._provision, placing=Placing(mode, folder=self._provision.base))

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Remove the directory with all that is in it."""
        if facts.get("kind") == "directory":
            return Emptied(kept=(CHOSEN,))
        count = 0
        kept: tuple[str, ...] = ()
        if facts.get("kind") == "worktree":
            with suppress(KipuError, OSError):  # its repository may be gone: the directory goes all the same
                workspace = await self._provision.open(facts["record"])
                removal = await self._provision.remove(workspace, force=True)
                kept = (BRANCH,) if removal.kept_branch is not None else ()
        await asyncio.to_thread(LocalCopies(self._provision.base).forget, session_id)
        for folder in {self._provision.base / session_id, *_shared_folder(session_id, facts)}:
            count += await asyncio.to_thread(_count, folder)
            await asyncio.to_thread(remove_tree, folder)
        kept = (*kept, *await asyncio.to_thread(self._left_elsewhere, facts.get("record", {})))
        return Emptied({"files": count}, kept)

    def _left_elsewhere(self, record: dict[str, Any]) -> tuple[str, ...]:
        """Return what other machines have of the session, as far as its record says."""
        place = Place.from_json(record.get("place"))
        if place is None:
            return (COPIES,) if "at" in record else ()
        marks = (
            read_mark(self._provision.base / HOST_MARK),
            read_mark(Path(record.get("path", "")).parent / ROOT_MARK),
        )
        return () if place.id in marks else (COPIES if record.get("kind") == "private" else ELSEWHERE,)

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Return that nothing here is a person's but what is their sessions'."""
        return Emptied()

    def roots(self) -> Sequence[Path]:
        """Return the folder of all directories."""
        return (self._provision.base,)


def _count(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if not path.is_dir()) if folder.is_dir() else 0


def _shared_folder(session_id: str, facts: Facts) -> list[Path]:
    """Return the session's own directory in a directory that all machines share, told by the mark that is there."""
    record = facts.get("record", {})
    path, place = Path(str(record.get("path", ""))), record.get("place") or [""]
    is_own = path.name == session_id and read_mark(path.parent / ROOT_MARK) == place[0]
    return [path] if is_own else []
