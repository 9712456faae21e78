"""`kipu grants` and `kipu revoke`: what people allowed for more than once, and taking it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.runtime.policy.grant import Grant
    from kipu.runtime.policy.grants import Grants

app = typer.Typer(add_completion=False)


@app.command("grants")
def grants(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """List what runs without asking because somebody allowed it with `always`: in a session, a project, or everywhere."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_grants(invocation))


async def _grants(invocation: Invocation) -> None:
    from kipu.cli.head_view import moment

    output = invocation.output
    async with invocation.manager() as manager:
        found = await _all(manager, grants_of(manager))
    if output.json:
        output.emit([grant.to_json() for grant in found])
        return
    rows = (
        (grant.grant_id, grant.scope, grant.target or "-", moment(grant.created_at), grant.tool, _subject(grant))
        for grant in found
    )
    output.table(("id", "scope", "for", "granted", "tool", "subject"), rows)
    if not found:
        output.say("nothing is allowed for good")


def _subject(grant: Grant) -> str:
    return grant.subject if grant.match == "exact" else f"{grant.subject} ({grant.match})"


@app.command("revoke")
def revoke(
    context: typer.Context,
    *,
    grant: Annotated[str, typer.Argument(metavar="ID", help="A grant's id, or the unique start or end of one.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Take a grant back, in every process, from the next call on."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_revoke(invocation, grant))


async def _revoke(invocation: Invocation, text: str) -> None:
    from kipu.errors import GrantNotFoundError

    output = invocation.output
    async with invocation.manager() as manager:
        kept = grants_of(manager)
        found = [
            grant
            for grant in await _all(manager, kept)
            if grant.grant_id == text
            or (len(text) >= 4 and (grant.grant_id.startswith(text) or grant.grant_id.endswith(text)))
        ]
        if len(found) != 1:
            reason = f"it could be any of {', '.join(one.grant_id for one in found[:5])}" if found else "there is none"
            raise GrantNotFoundError(grant_id=text, reason=reason)
        (grant,) = found
        session = await manager.open(grant.target) if grant.scope == "session" else None
        await kept.revoke(grant.grant_id, principal=manager.principal, session=session)
    if output.json:
        output.emit({**grant.to_json(), "revoked": True})
    else:
        output.say(f"{grant.tool} on {_subject(grant)} is asked about again")


async def _all(manager: SessionManager, kept: Grants) -> list[Grant]:
    """Return every grant of the principal; those for one session stand in its head."""
    from kipu.runtime.policy.grants import PREFIX

    found: list[Grant] = []
    async for head in manager.heads():
        if any(name.startswith(PREFIX) for name in head.metadata):
            session = await manager.open(head.session_id)
            found += [
                grant for grant in await kept.list(manager.principal, session=session) if grant.scope == "session"
            ]
    return [*found, *(grant for grant in await kept.list(manager.principal) if grant.scope != "session")]


def grants_of(manager: SessionManager) -> Grants:
    """Return the grants that a manager's store keeps."""
    from kipu.runtime.agent_builder import SPLITTERS
    from kipu.runtime.policy.grants import Grants
    from kipu.stores.host import SystemClock

    return Grants(manager, clock=SystemClock(), splitters=SPLITTERS)
