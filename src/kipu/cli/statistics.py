"""`kipu stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.completion import complete_session
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session

app = typer.Typer(add_completion=False)


@app.command("stats")
def stats(
    context: typer.Context,
    *,
    session: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One session (default: the store).", autocompletion=complete_session),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Count sessions, events and tokens of the store, or what one session is made of and what its model calls cost."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_stats(invocation, session))


async def _stats(invocation: Invocation, text: str | None) -> None:
    from kipu.cli.reference import find_session

    async with invocation.manager() as manager:
        found = (
            await session_stats(await find_session(manager, text)) if text is not None else await store_stats(manager)
        )
    if invocation.json:
        invocation.output.emit(found)
    else:
        invocation.output.facts(stats_lines(found))


def stats_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return counts as names and text for people; what counts nothing is left out."""
    shown = ((name.replace("_", " "), _shown(value)) for name, value in found.items())
    return [(name, value) for name, value in shown if value]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


async def store_stats(manager: SessionManager) -> dict[str, Any]:
    """Return the counts of a whole store, from its heads alone."""
    from collections import Counter

    from kipu.cli.reference import EVERY_STATUS
    from kipu.ports.store import SessionQuery

    description = manager.store.describe()
    statuses: Counter[str] = Counter()
    events = tokens = waiting = forks = behind = 0
    async for head in manager.heads(SessionQuery(limit=500, statuses=EVERY_STATUS)):
        statuses[head.status] += 1
        events += head.event_count
        tokens += head.token_count
        waiting += len(head.waiting)
        forks += head.forked_from is not None
        behind += max(0, head.last_seq - max(head.indexed_seq, head.base_seq))
    return {
        "store": description.url,
        "kind": description.kind,
        "durability": description.durability,
        "loss_window": description.loss_window,
        "read_only": description.read_only,
        "notes": list(description.notes),
        "sessions": statuses.total(),
        "statuses": dict(statuses),
        "forks": forks,
        "events": events,
        "tokens": tokens,
        "waiting_messages": waiting,
        "events_not_indexed": behind,
    }


async def session_stats(session: Session) -> dict[str, Any]:
    """Return what a session is made of: its events by type, and what its model calls cost."""
    from collections import Counter

    from kipu.events.conversation import AgentMessageEvent

    types: Counter[str] = Counter()
    usage: Counter[str] = Counter()
    async for event in session.events():
        types[event.event_type] += 1
        if isinstance(event, AgentMessageEvent) and event.usage:
            usage.update({name: count for name, count in event.usage.items() if isinstance(count, int)})
    head = session.head
    return {
        "session_id": head.session_id,
        "title": head.display_title,
        "status": head.status,
        "events": types.total(),
        "own_events": head.event_count,
        "tokens": head.token_count,
        "window_from": head.window_seq,
        "types": dict(types.most_common()),
        "model_usage": dict(usage),
    }
