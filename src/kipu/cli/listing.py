"""`kipu ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.ports.head import Head
    from kipu.ports.store import SessionQuery

app = typer.Typer(add_completion=False)
ON_SCREEN = 50


@app.command("ls")
def ls(
    context: typer.Context,
    *,
    status: Annotated[
        list[str] | None, typer.Option(help="active, expired, archived or trashed; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only sessions with this tag; may be repeated.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Only sessions of this key; end it with * for all that begin so.")
    ] = None,
    meta: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only sessions with this setting.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Active since this ISO 8601 time.")] = None,
    before: Annotated[str | None, typer.Option(metavar="TIME", help="Not active since this ISO 8601 time.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned sessions.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help=f"At most so many (default: {ON_SCREEN} on a terminal, else all)."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List sessions, the most recently active first. Trash is listed with --status trashed."""
    invocation = begin(context, store=store, json=json)
    query = _query(status=status, tag=tag, key=key, meta=meta, since=since, before=before, pinned=pinned)
    most = limit if limit is not None else ON_SCREEN if invocation.output.rich else None
    invocation.run(_ls(invocation, query, most))


def _query(
    *,
    status: list[str] | None,
    tag: list[str] | None,
    key: str | None,
    meta: list[str] | None,
    since: str | None,
    before: str | None,
    pinned: bool,
) -> SessionQuery:
    from kipu.errors import InvalidQueryError
    from kipu.manager.criteria import time_text
    from kipu.ports.store import SessionQuery
    from kipu.session.lifecycle import STATUSES

    wrong = [name for name in status or () if name not in STATUSES]
    if wrong:
        raise InvalidQueryError(reason=f"status {wrong[0]!r} is not one of {', '.join(STATUSES)}")
    pairs = [entry.partition("=") for entry in meta or ()]
    if any(not equals or not name for name, equals, _ in pairs):
        raise InvalidQueryError(reason="--meta is written NAME=VALUE")
    begins = key is not None and key.endswith("*")
    return SessionQuery(
        statuses=frozenset(status) if status else None,
        tags=frozenset(tag or ()),
        metadata={name: _value(value) for name, _, value in pairs},
        key=None if begins else key,
        key_prefix=key[:-1] if key is not None and begins else None,
        active_after=time_text("since", since) if since else None,
        active_before=time_text("before", before) if before else None,
        pinned=True if pinned else None,
        limit=1000,
    )


def _value(text: str) -> object:
    """Return a setting as JSON where it is JSON, else as text."""
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


async def _ls(invocation: Invocation, query: SessionQuery, most: int | None) -> None:
    import gc
    from dataclasses import replace

    from kipu.cli.head_view import COLUMNS, head_json, head_row
    from kipu.manager.listing import all_heads
    from kipu.ports.principal import Principal
    from kipu.ports.store import SessionQuery

    if most is not None:
        query = replace(query, limit=min(most + 1, query.limit))
    found: list[Head] = []
    gc.disable()  # nothing here makes cycles, and looking for them among thousands of heads costs a third of the time
    unreadable: list[Head] = []
    if not invocation.is_new_user:
        async with invocation.store() as store:
            async for head in all_heads(store, query, principal=Principal.local()):
                found.append(head)
                if most is not None and len(found) > most:
                    break
            unreadable = list((await store.list(SessionQuery(statuses=frozenset({"unreadable"}), limit=100))).items)
    more = most is not None and len(found) > most
    found = found[:most]
    output = invocation.output
    for head in unreadable:
        output.say(f"{head.session_id} cannot be listed: {head.title}; kipu verify says more", style="yellow")
    if output.json:
        output.emit([head_json(head) for head in found])
        return
    output.table(COLUMNS, (head_row(head) for head in found))
    if more:
        output.say(f"there are more: kipu ls -n {10 * (most or ON_SCREEN)}")
    if not found and not unreadable:
        is_all = replace(query, limit=1) == SessionQuery(limit=1)
        output.say(
            "no sessions yet: begin one with kipu chat" if is_all else "no session is like that; kipu ls lists all"
        )
