"""What `kipu run` is asked to do, and the session in which it does it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kipu.cli.reference import find_session
from kipu.errors import InputError, SessionNotFoundError
from kipu.manager.access import Verb
from kipu.ports.store import SessionQuery
from kipu.runtime.turns.ancestry import PARENT
from kipu.session.patch import WORKSPACE

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.ports.workspace import WorkspaceKind
    from kipu.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Task:
    """What was asked for on the command line."""

    text: str
    session: str | None = None
    last: bool = False
    resume: str | None = None
    folder: Path | None = None
    kind: WorkspaceKind = "directory"
    model: str | None = None
    title: str | None = None

    @property
    def is_new(self) -> bool:
        """Return True when a session is begun for it."""
        return self.session is None and self.resume is None and not self.last

    @property
    def place(self) -> str:
        """Return the directory meant, its links resolved."""
        return os.path.realpath(self.folder or Path.cwd())

    def check(self) -> None:
        """Raise what does not go together: typer.BadParameter."""
        if sum((self.session is not None, self.last, self.resume is not None)) > 1:
            raise typer.BadParameter("give one of --session, --continue and --resume")
        if not self.is_new and (self.title or self.kind != "directory" or (self.folder and not self.last)):
            raise typer.BadParameter("a session that is there keeps its directory and its title")
        if self.kind == "private" and self.folder is not None:
            raise typer.BadParameter("give one of --private and --workspace")
        if self.folder is not None and not self.folder.is_dir():
            raise typer.BadParameter(f"there is no directory {self.folder}")


@dataclass(frozen=True, slots=True)
class OpenedTask:
    """The session, and what is waited for: an open turn, or the message that is to be answered. `after` is the log before it."""

    session: Session
    text: str
    after: int
    is_new: bool = False


async def open_task(task: Task, runtime: Runtime) -> OpenedTask:
    """Return the session of the task; a new one is made here. Nothing is stored when the model cannot be had.

    Raises: SessionNotFoundError, SessionAmbiguousError, InputError (nothing to go on with), ModelError, WorkspaceError.
    """
    if task.is_new:
        session = await _new_session(task, runtime)
    elif task.last:
        session = await _newest_here(runtime.manager, task.place)
    else:
        session = await find_session(runtime.manager, task.session or task.resume or "", verb=Verb.SEND)
    if not task.is_new:
        await session.refresh()
        if task.model is not None:
            runtime.builder.model(task.model)
            if session.head.metadata.get("model") != task.model:
                await session.set_metadata(model=task.model)
    head = session.head
    if task.resume is not None and head.open_turn is None and not head.waiting:
        raise InputError(
            reason=f"session {session.session_id} has no open turn and no waiting message; give it a task with --session"
        )
    return OpenedTask(session, task.text, session.history.last_seq, is_new=task.is_new)


async def _new_session(task: Task, runtime: Runtime) -> Session:
    runtime.builder.model(task.model)
    manager, provision = runtime.manager, runtime.builder.provision
    session_id = manager.mint("sess")
    folder = Path(task.place)
    if task.kind == "private":
        workspace = await provision.private(session_id)
    elif task.kind == "worktree":
        workspace = await provision.worktree(session_id, repository=folder)
    else:
        workspace = await provision.directory(session_id, path=folder)
    settings: dict[str, Any] = {WORKSPACE: workspace.describe()}
    if task.model is not None:
        settings["model"] = task.model
    await manager.create_session(session_id, settings, title=task.title)
    return await manager.open(session_id)


async def _newest_here(manager: SessionManager, here: str) -> Session:
    """Return the most recently active session of the caller's own that works in `here`, or in a worktree of the repository there."""
    async for head in manager.heads(SessionQuery(limit=100, owner=manager.principal.id)):
        workspace = head.workspace or {}
        is_child = PARENT in head.metadata  # a helper's session, in its parent's directory
        if here in (workspace.get("path"), workspace.get("repository")) and not is_child:
            return await manager.open(head.session_id)
    raise SessionNotFoundError(session_id=f"in {here}")
