"""`kipu show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from kipu.manager.session import Session

app = typer.Typer(add_completion=False)


@app.command("show")
def show(
    context: typer.Context,
    *,
    session: SessionArgument,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Only the last so many events (0: all).")] = 0,
    events: Annotated[
        bool, typer.Option("--events", help="Every event with its number, not only what was said.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show a session: its facts and its transcript. With --json: its head, and every event as stored."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_show(invocation, session, last, events=events))


async def _show(invocation: Invocation, text: str, last: int, *, events: bool) -> None:
    from kipu.cli.head_view import head_json
    from kipu.cli.reference import find_session
    from kipu.cli.transcript import event_json, event_line, write_event
    from kipu.session.branch import visible

    output = invocation.output
    async with invocation.manager() as manager:
        session = await find_session(manager, text)
        found = await (session.get_recent_events(last) if last else session.get_full_history())
        if output.json:
            output.emit({**head_json(session.head), "events": [event_json(event) for event in found]})
            return
        output.facts(facts_of(session))
        output.line()
        if events:
            output.table(("seq", "time", "type", "text"), (event_line(event) for event in found))
            return
        for event in visible(found):
            write_event(output, event)


def facts_of(session: Session) -> list[tuple[str, Any]]:
    """Return what is worth knowing of a session before its transcript."""
    from kipu.cli.head_view import moment

    head = session.head
    return [
        ("session", head.session_id),
        ("title", head.display_title),
        ("status", head.status),
        ("key", head.key),
        ("tags", ", ".join(head.tags)),
        ("created", moment(head.created_at)),
        ("last activity", moment(head.last_activity_at)),
        ("events", head.event_count),
        ("tokens", head.token_count),
        ("forked from", f"{head.forked_from} at {head.base_seq}" if head.forked_from else None),
        ("settings", ", ".join(f"{name}={value}" for name, value in head.metadata.items())),
        ("waiting", ", ".join(map(str, head.waiting))),
        ("open turn", head.open_turn),
    ]
