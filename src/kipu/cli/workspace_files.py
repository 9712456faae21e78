"""`kipu diff` and `kipu undo`: what a session did to its files, and taking its last turns back with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session
    from kipu.runtime.session_workspaces import SessionWorkspaces
    from kipu.runtime.workspaces.checkpoints import CheckpointRecorder, Undone
    from kipu.runtime.workspaces.local import LocalWorkspace

app = typer.Typer(add_completion=False)


@app.command("diff")
def diff(
    context: typer.Context,
    *,
    session: SessionArgument,
    turns: Annotated[int | None, typer.Option(min=1, help="Only since the last so many turns began.")] = None,
    since: Annotated[int | None, typer.Option(metavar="SEQ", min=0, help="Only since this turn boundary.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show how the files differ from what they were before the session's first change (unified diff)."""
    if turns is not None and since is not None:
        raise typer.BadParameter("give one of --turns and --since")
    invocation = begin(context, store=store, json=json)
    invocation.run(_diff(invocation, session, turns=turns, since=since))


async def _diff(invocation: Invocation, text: str, *, turns: int | None, since: int | None) -> None:
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb
    from kipu.manager.rewinding import before_turns
    from kipu.runtime.workspaces.checkpoints import diff_since

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        await session.refresh()
        to_seq = since if since is not None else session.head.base_seq
        if turns is not None:
            to_seq = await before_turns(session, turns)
        await session.permit(Verb.APPEND)
        places = await _places(invocation, manager)
        async with places.looked_at(session) as workspace:
            changes = await diff_since(session, workspace, to_seq=to_seq)
            root = str((session.head.workspace or {}).get("path", workspace.root))
    if output.json:
        output.emit({"session_id": session.session_id, "since": to_seq, "root": root, "diff": changes})
        return
    for line in changes.splitlines():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        output.line(line, style=style)
    if not changes:
        output.say(f"nothing in {root} differs")


@app.command("undo")
def undo(
    context: typer.Context,
    *,
    session: SessionArgument,
    turns: Annotated[int, typer.Option(min=1, help="The last so many turns.")] = 1,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Take the last turns back: the model no longer sees them, and the files are again what they were before."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_undo(invocation, session, turns))


async def _undo(invocation: Invocation, text: str, turns: int) -> None:
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.REWIND)
        await rewind_with_files(invocation, manager, session=session, to=None, turns=turns)


async def rewind_with_files(
    invocation: Invocation, manager: SessionManager, *, session: Session, to: int | None, turns: int
) -> None:
    """Go back before the turns, conversation and files, and say what changed."""
    from kipu.cli.reference import BUSY_WAIT_S
    from kipu.cli.transcript import event_json
    from kipu.runtime.workspaces.checkpoints import undo

    output = invocation.output
    async with workspace_of(invocation, manager, session=session) as (workspace, recorder):
        async with session.holding(wait_s=BUSY_WAIT_S):
            undone: Undone = await undo(session, workspace, recorder=recorder, to_seq=to, turns=turns)
        root = str(workspace.root)
    if output.json:
        rewound = None if undone.rewind is None else event_json(undone.rewind)
        output.emit(
            {"session_id": session.session_id, "to_seq": undone.to_seq, "files": undone.paths, "rewind": rewound}
        )
        return
    output.say(f"went back to event {undone.to_seq}; no event is removed")
    for path in undone.paths:
        output.line(path)
    files = "one file is" if len(undone.paths) == 1 else f"{len(undone.paths)} files are"
    output.say(f"{files} as before in {root}" if undone.paths else f"no file of {root} had to change")


@asynccontextmanager
async def workspace_of(
    invocation: Invocation, manager: SessionManager, *, session: Session
) -> AsyncIterator[tuple[LocalWorkspace, CheckpointRecorder]]:
    """Open the session's directory and what keeps its checkpoints, for whoever runs the session: a role shares no files.

    Raises: AccessDeniedError, WorkspaceMissingError, WorkspaceError.
    """
    from kipu.manager.access import Verb

    await session.permit(Verb.APPEND)
    places = await _places(invocation, manager)
    workspace = await places.open(session)
    try:
        yield workspace, await places.recorder(session, workspace)
    finally:
        await workspace.aclose()


async def _places(invocation: Invocation, manager: SessionManager) -> SessionWorkspaces:
    """Return what opens the directories of sessions as the settings in force say. Raises: SharedRootError, ConfigurationError."""
    import time

    from kipu.cli.serving import settings_of
    from kipu.runtime.session_workspaces import SessionWorkspaces
    from kipu.runtime.workspaces.presence import Presence
    from kipu.stores.host import SystemClock

    places = SessionWorkspaces(manager, settings_of(invocation).provision(manager.store, clock=SystemClock()))
    await Presence(manager, places.placing, monotonic_s=time.monotonic).confirm()
    return places
