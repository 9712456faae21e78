"""`kipu share`, `kipu unshare`, `kipu members` and `kipu audit`: who else sees a session, and who tried to."""

from __future__ import annotations

from typing import Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

app = typer.Typer(add_completion=False)

WhoArgument = Annotated[str, typer.Argument(metavar="WHO", help="A principal's id, in the session's tenant.")]


@app.command("share")
def share(
    context: typer.Context,
    *,
    session: SessionArgument,
    who: WhoArgument,
    role: Annotated[
        str,
        typer.Option(
            "--role", help="viewer (reads), participant (also sends, decides, stops), admin (all that the owner may)."
        ),
    ] = "viewer",
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Let somebody see a session, and take part in it: kipu share ID bob --role participant. It gives them no tool."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_share(invocation, session, who, role))


async def _share(invocation: Invocation, text: str, who: str, role: str) -> None:
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.SHARE)
        member = await session.share(who, role=role)
        if invocation.json:
            invocation.output.emit({"session_id": session.session_id, **member.to_json()})
        else:
            invocation.output.say(f"{who} is a {role} of {session.session_id}; kipu unshare takes it back")


@app.command("unshare")
def unshare(
    context: typer.Context,
    *,
    session: SessionArgument,
    who: WhoArgument,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Take a role back: from then on they see nothing of the session, wherever they have it open."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_unshare(invocation, session, who))


async def _unshare(invocation: Invocation, text: str, who: str) -> None:
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    async with invocation.manager() as manager:
        verb = Verb.LEAVE if who == manager.principal.id else Verb.SHARE
        session = await find_session(manager, text, verb=verb)
        revoked = await session.revoke(who)
        if invocation.json:
            invocation.output.emit({"session_id": session.session_id, "principal_id": who, "revoked": revoked})
        else:
            said = "sees nothing of" if revoked else "was no member of"
            invocation.output.say(f"{who} {said} {session.session_id}")


@app.command("members")
def members(
    context: typer.Context, *, session: SessionArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """List who may see a session: its owner, and with whom it is shared, in which role."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_members(invocation, session))


async def _members(invocation: Invocation, text: str) -> None:
    from kipu.cli.reference import find_session

    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        found = await session.members()
    if invocation.json:
        invocation.output.emit([member.to_json() for member in found])
    else:
        invocation.output.table(("who", "role"), [(member.principal_id, member.role) for member in found])


@app.command("audit")
def audit(
    context: typer.Context, *, session: SessionArgument, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Show who was let into a session, by whom, what was allowed for good in it, and what was refused to whom."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_audit(invocation, session))


async def _audit(invocation: Invocation, text: str) -> None:
    from kipu.cli.head_view import moment
    from kipu.cli.reference import find_session
    from kipu.manager.access import Verb

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text, verb=Verb.AUDIT)
        entries = [entry async for entry in session.audit()]
    if output.json:
        output.emit([entry.to_json() for entry in entries])
        return
    rows = (
        (
            str(entry.seq),
            moment(entry.at.isoformat() if entry.at else ""),
            entry.what if entry.count == 1 else f"{entry.what} ({entry.count} times)",
            entry.who,
            entry.by or "-",
            entry.detail,
        )
        for entry in entries
    )
    output.table(("seq", "when", "what", "who", "by", "detail"), rows)
