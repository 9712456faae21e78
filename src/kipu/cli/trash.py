"""`kipu trash`, `kipu restore` and `kipu erase`: from out of sight to gone, each a step of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption, WholeIdArgument

app = typer.Typer(add_completion=False)


@app.command("trash")
def trash(
    context: typer.Context, *, session: SessionArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Put a session into the trash: it is no longer listed, and nothing of it is removed. `kipu restore` brings it back."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_move(invocation, session, "trashed"))


@app.command("restore")
def restore(
    context: typer.Context, *, session: SessionArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Bring a session back from the trash, the archive or expiry."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_move(invocation, session, "active"))


async def _move(invocation: Invocation, text: str, status: str) -> None:
    from kipu.cli.head_view import head_json
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, Verb.CONFIGURE)
        changed = await session.set_status(status, reason="command line")
        if invocation.json:
            invocation.output.emit(head_json(session.head))
        else:
            invocation.output.say(f"{session.session_id} is {'now' if changed else 'already'} {status}")


@app.command("erase")
def erase(
    context: typer.Context,
    *,
    session: WholeIdArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="Erase its forks too.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Remove every byte of a session for good. There is no way back; `kipu trash` has one."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_require_whole_id(invocation, session))
    if not yes:
        typer.confirm(f"Erase {session} for good?", abort=True, err=True)
    invocation.run(_erase(invocation, session, cascade=cascade))


async def _require_whole_id(invocation: Invocation, text: str) -> None:
    """Return where `text` is nobody's key or part of an id: what cannot be undone is not done to what was guessed."""
    from kipu.cli.reference import find_head
    from kipu.errors import InputError
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session_id = await find_head(manager, text, Verb.ERASE)
    if session_id != text:
        raise InputError(reason=f"erase takes a whole id only, and {text} could mean {session_id}")


async def _erase(invocation: Invocation, session_id: str, *, cascade: bool) -> None:
    from kipu.errors import SessionNotFoundError

    async with invocation.manager() as manager:
        if not await manager.delete_session(session_id, cascade=cascade):
            raise SessionNotFoundError(session_id=session_id)
    if invocation.json:
        invocation.output.emit({"session_id": session_id, "erased": True})
    else:
        invocation.output.say(f"{session_id} is erased")
