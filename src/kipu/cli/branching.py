"""`kipu fork` and `kipu rewind`."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

app = typer.Typer(add_completion=False)


@app.command("fork")
def fork(
    context: typer.Context,
    *,
    session: SessionArgument,
    at: Annotated[
        int | None, typer.Option(metavar="SEQ", min=1, help="Share events up to this one (default: all).")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Begin a session that goes on from another one's history, without copying it; print its id."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_fork(invocation, session, at, title=title))


async def _fork(invocation: Invocation, text: str, at: int | None, *, title: str | None) -> None:
    from kipu.cli.head_view import head_json
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        child = await (await find_session(manager, text, verb=Verb.FORK)).fork(at, title=title)
        if invocation.json:
            invocation.output.emit(head_json(child.head))
            return
        invocation.output.write(child.session_id + "\n")
        invocation.output.say(
            f"forked at event {child.head.base_seq}; go on with: kipu chat --resume {child.session_id}"
        )


@app.command("rewind")
def rewind(
    context: typer.Context,
    *,
    session: SessionArgument,
    turns: Annotated[int, typer.Option(min=1, help="Go back before the last so many turns.")] = 1,
    to: Annotated[int | None, typer.Option(metavar="SEQ", min=0, help="Go back to this turn boundary instead.")] = None,
    files: Annotated[bool, typer.Option("--files", help="Bring the session's files back too.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Undo the newest turns: the model no longer sees them, the log keeps them."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_rewind(invocation, session, turns, to=to, files=files))


async def _rewind(invocation: Invocation, text: str, turns: int, *, to: int | None, files: bool) -> None:
    from kipu.cli.reference import BUSY_WAIT_S, find_session
    from kipu.cli.transcript import event_json
    from kipu.cli.workspace_files import rewind_with_files
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.REWIND)
        if files:
            await rewind_with_files(invocation, manager, session=session, to=to, turns=turns)
            return
        async with session.holding(wait_s=BUSY_WAIT_S):
            event = await session.rewind(to, turns=turns)
        if invocation.json:
            invocation.output.emit(event_json(event))
        else:
            undone = event.seq - 1 - getattr(event, "to_seq", 0)
            invocation.output.say(
                f"went back to event {getattr(event, 'to_seq', 0)}; {undone} events are undone, none is removed"
            )
