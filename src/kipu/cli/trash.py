"""`kipu trash` and `kipu restore`: out of sight, and back."""

from __future__ import annotations

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

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
    from kipu.cli.reference import BUSY_WAIT_S, find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.CONFIGURE)
        async with session.holding(wait_s=BUSY_WAIT_S):
            changed = await session.set_status(status, reason="command line")
        if invocation.json:
            invocation.output.emit(head_json(session.head))
        else:
            invocation.output.say(f"{session.session_id} is {'now' if changed else 'already'} {status}")
