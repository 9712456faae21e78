"""`kipu approvals`, `approve`, `deny` and `answer`: decisions of a person, from any process, while a chat runs or none does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kipu.cli.completion import complete_approval, complete_session
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.events.turn import ApprovalDecisionEvent
    from kipu.manager.manager import SessionManager
    from kipu.runtime.approvals import ApprovalDesk, PendingApproval

app = typer.Typer(add_completion=False)
ApprovalArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="An approval's id, or the unique start or end of one.", autocompletion=complete_approval
    ),
]
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; the log keeps it.")]


@app.command("approvals")
def approvals(
    context: typer.Context,
    *,
    session: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only those of this session.", autocompletion=complete_session)
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the calls and questions that wait for a person, the oldest first, with what each would do."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_approvals(invocation, session))


async def _approvals(invocation: Invocation, session: str | None) -> None:
    from kipu.cli.reference import find_head

    output = invocation.output
    async with invocation.manager() as manager:
        session_id = await find_head(manager, session) if session is not None else None
        pending = await _desk(manager).pending(session_id=session_id)
        now_s = manager.now_us() / 1e6
    if output.json:
        output.emit([approval.to_json() for approval in pending])
        return
    output.table(("id", "asked", "expires", "session", "tool", "summary"), (_row(one, now_s) for one in pending))
    if not pending:
        output.say("nothing waits for a person")


def _row(approval: PendingApproval, now_s: float) -> tuple[str, ...]:
    asked, expires = approval.asked_at, approval.expires_at
    until = "-" if expires is None else f"in {span(expires.timestamp() - now_s)}"
    return (
        approval.approval_id,
        "-" if asked is None else f"{span(now_s - asked.timestamp())} ago",
        "expired" if approval.is_expired else until,
        approval.title,
        approval.tool_name,
        str(approval.shown.get("summary") or dict(approval.arguments)),
    )


def span(seconds: float) -> str:
    """Return a length of time for people.

    >>> span(90), span(7200), span(200_000)
    ('90 s', '120 min', '56 h')
    """
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    minutes = seconds / 60
    return (
        f"{minutes:.0f} min"
        if minutes <= 120
        else f"{minutes / 60:.0f} h"
        if minutes < 4320
        else f"{minutes / 1440:.0f} d"
    )


@app.command("approve")
def approve(
    context: typer.Context,
    *,
    approval: ApprovalArgument,
    always: Annotated[
        Literal["session", "project", "user"] | None,
        typer.Option(help="Allow the same from now on, in this session, in its project, or wherever you work."),
    ] = None,
    match: Annotated[
        Literal["exact", "below"],
        typer.Option(help="With --always: the very same, or also what is below that path or begins with that command."),
    ] = "exact",
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it with these arguments instead; the log keeps both.")
    ] = None,
    reason: ReasonOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Allow a call that waits, once, or with --always the same from now on. The first decision counts."""
    invocation = begin(context, store=store, json=json)
    changed = _object(arguments) if arguments is not None else None

    async def decide(desk: ApprovalDesk, approval_id: str, session_id: str | None) -> ApprovalDecisionEvent:
        return await desk.approve(
            approval_id,
            scope=always or "once",
            match=match,
            arguments=changed,
            reason=reason,
            session_id=session_id,
        )

    invocation.run(_decide(invocation, approval, decide))


@app.command("deny")
def deny(
    context: typer.Context,
    *,
    approval: ApprovalArgument,
    reason: ReasonOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Refuse a call that waits; the model is told, with the reason. The first decision counts."""
    invocation = begin(context, store=store, json=json)

    async def decide(desk: ApprovalDesk, approval_id: str, session_id: str | None) -> ApprovalDecisionEvent:
        return await desk.deny(approval_id, reason=reason, session_id=session_id)

    invocation.run(_decide(invocation, approval, decide))


@app.command("answer")
def answer(
    context: typer.Context,
    *,
    approval: ApprovalArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a question that the agent asked; its turn goes on with your words. The first answer counts."""
    import sys

    said = sys.stdin.read() if text == "-" else text
    invocation = begin(context, store=store, json=json)

    async def decide(desk: ApprovalDesk, approval_id: str, session_id: str | None) -> ApprovalDecisionEvent:
        return await desk.answer(approval_id, said, session_id=session_id)

    invocation.run(_decide(invocation, approval, decide))


async def _decide(invocation: Invocation, text: str, decide: Any) -> None:
    from kipu.cli.approval_reference import find_approval
    from kipu.cli.helper_sessions import begun_by
    from kipu.cli.runner import taken_up
    from kipu.cli.transcript import event_json

    output = invocation.output
    async with invocation.manager() as manager:
        desk = _desk(manager)
        approval_id, session_id = await find_approval(desk, text)
        event: ApprovalDecisionEvent = await decide(desk, approval_id, session_id)
        session = await manager.open(session_id or event.session_id or "")
        worker = await taken_up(session, after=event.seq)
        works_in = await begun_by(manager, session.session_id)
        left = [one for one in await desk.pending(session_id=session.session_id) if not one.is_expired]
    if output.json:
        record = {**event_json(event), "session_id": session.session_id, "taken_up_by": worker and worker.pid}
        output.emit({**record, "still_waiting": [one.approval_id for one in left]})
        return
    output.say(f"{approval_id} is {event.decision}")
    if worker is not None:
        output.say(f"process {worker.pid} goes on with the turn")
    elif left:
        output.say(f"{len(left)} more of the same turn wait: kipu approvals {session.session_id}")
    else:
        output.say(f"nobody has gone on with it yet: kipu run --resume {works_in}  or  kipu chat --resume {works_in}")


def _object(text: str) -> dict[str, Any]:
    import orjson

    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--arguments is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter('--arguments is a JSON object, such as \'{"path": "a.txt"}\'')
    return value


def _desk(manager: SessionManager) -> ApprovalDesk:
    from kipu.cli.granting import grants_of
    from kipu.runtime.approvals import ApprovalDesk

    return ApprovalDesk(manager, grants=grants_of(manager))
