"""Where a session works: chosen when it begins, looked at when it is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.errors import InputError, KipuError
from kipu.ports.home_path import home_path
from kipu.ports.store import SessionQuery
from kipu.runtime.turns.ancestry import PARENT
from kipu.session.patch import WORKSPACE

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.runtime.workspaces.provision import WorkspaceProvision

LOOKED_AT = 200
LIVELY_S = 900
_ELSEWHERE = "the directory is on {host}, and turns run there only; choose another with /cwd DIR"
_STATES = {
    "missing": ("the directory {root} is gone; bring it back, or choose another with /cwd DIR", "red"),
    "moved": ("the directory was moved; it is now {root}", "yellow"),
    "dirty": ("works in {root}, which has changes that no commit has", "dim"),
    "present": ("works in {root}", "dim"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """What was asked for: a directory (the one where the chat began, unless another is named), a worktree of it, or private."""

    kind: str
    path: Path

    @classmethod
    def chosen(cls, workspace: str | None, *, is_worktree: bool, default: str | None) -> Place:
        """Return what the options ask for, else the settings. Raises: InputError (both at once, or no such directory)."""
        here = Path.cwd()
        if is_worktree and workspace == "private":
            raise InputError(reason="a worktree and a private directory are two things; give one of them")
        if workspace is not None and workspace != "private":
            path = home_path(workspace).absolute()
            if not path.is_dir():
                raise InputError(reason=f"there is no directory {path} to work in")
            return cls("worktree" if is_worktree else "directory", path)
        if workspace == "private":
            return cls("private", here)
        return cls("worktree" if is_worktree else default or "directory", here)


async def give_place(session: Session, place: Place, *, provision: WorkspaceProvision) -> None:
    """Keep with a new session where it works. Raises: WorkspaceError, GitError."""
    if place.kind == "private":
        return  # made when it is needed, under the session's id
    if place.kind == "worktree":
        workspace = await provision.worktree(session.session_id, repository=place.path)
    else:
        workspace = await provision.directory(session.session_id, path=place.path)
    changed: dict[str, Any] = {WORKSPACE: workspace.describe()}
    await session.set_metadata(**changed)


async def standing_of_place(session: Session, *, provision: WorkspaceProvision) -> tuple[str, str] | None:
    """Return how the session's directory stands, and in which style to say it; None for one that is not made yet."""
    record = session.head.workspace
    if not record:
        return None
    try:
        elsewhere = await asyncio.to_thread(provision.placing.elsewhere, record) if provision.placing else None
        if elsewhere is not None:
            return _ELSEWHERE.format(host=elsewhere.name), "red"
        workspace = await provision.open(record)
        state = await workspace.state()
        if state == "missing" and "saved" in record:
            return "the directory is kept in the store; the next turn has it here", "dim"
        text, style = _STATES[state]
    except KipuError as error:
        return f"the session's directory cannot be used: {error} [{error.code}]", "red"
    return text.format(root=workspace.root), style


async def neighbours_notice(session: Session, *, manager: SessionManager, known: Collection[str] = ()) -> str | None:
    """Return a notice where sessions other than those `known` used the same files within the last quarter of an hour (B41)."""
    from kipu.runtime.workspaces.record import WorkspaceRecord, sharing

    record = session.head.workspace
    if not record:
        return None
    since = datetime.fromtimestamp(manager.now_us() / 1_000_000, UTC) - timedelta(seconds=LIVELY_S)
    page = await manager.list(SessionQuery(limit=LOOKED_AT, active_after=since.isoformat().replace("+00:00", "Z")))
    # Helpers work where whoever sent them does: that is no news.
    others = [head for head in page.items if head.session_id not in known and PARENT not in head.metadata]
    heads = {head.session_id: head for head in others}
    shared = sharing(WorkspaceRecord.from_json(record), heads.values(), session_id=session.session_id)
    if not shared:
        return None
    at_work = sum(heads[other.session_id].open_turn is not None for other in shared)
    named = ", ".join(f"“{other.title[:40]}” ({other.session_id[-6:]})" for other in shared[:2])
    number = "another session" if len(shared) == 1 else f"{len(shared)} other sessions"
    working = f", {at_work} with an open turn" if at_work else ""
    return f"{number} used the same files a moment ago{working}: {named}"
