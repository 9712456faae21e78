"""`kipu scan`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.completion import complete_session
from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.scanning import Suspicion

app = typer.Typer(add_completion=False)


@app.command("scan")
def scan(
    context: typer.Context,
    *,
    session: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One session (default: the store).", autocompletion=complete_session),
    ] = None,
    entropy: Annotated[
        bool, typer.Option("--entropy", help="Tell also what merely looks like chance; it does not count as found.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Say where stored sessions hold secrets: rule, session, event and field, never the secret. Ends with 1 where there are some.

    The values of this environment's secret variables are looked for too. Nothing is changed.
    """
    invocation = begin(context, store=store, json=json)
    if invocation.run(_scan(invocation, session, entropy=entropy)):
        raise typer.Exit(ExitCode.FAILURE)


async def _scan(invocation: Invocation, text: str | None, *, entropy: bool) -> int:
    from kipu.cli.reference import find_session
    from kipu.wiring import open_redactor

    output, redactor = invocation.output, open_redactor(os.environ)
    async with invocation.manager() as manager:
        session_id = (await find_session(manager, text)).session_id if text else None
        found = _suspicions(manager, session_id, redactor=redactor, entropy=entropy)
        rows = [each.to_json() async for each in found]
        url = manager.store.describe().url
    certain: int = sum(row["count"] for row in rows if row["rule"] != "entropy")
    if output.json:
        output.emit({"store": url, "session_id": session_id, "secrets": certain, "found": rows})
        return certain
    columns = ("session", "seq", "type", "field", "rule", "count")
    names = ("session_id", "seq", "event_type", "path", "rule", "count")
    output.table(columns, ([str(row[name]) for name in names] for row in rows))
    output.say(f"{url}: {certain} secrets found" if certain else f"{url}: no secret found")
    return certain


async def _suspicions(
    manager: SessionManager, session_id: str | None, *, redactor: Any, entropy: bool
) -> AsyncIterator[Suspicion]:
    from kipu.manager.scanning import scan_session
    from kipu.ports.store import SessionQuery

    if session_id is not None:
        heads = [(await manager.open(session_id)).head]
    else:
        statuses = frozenset({"active", "expired", "archived", "trashed"})
        heads = [head async for head in manager.heads(SessionQuery(statuses=statuses, limit=500))]
    for head in heads:
        async for found in scan_session(manager.store, head, redactor=redactor, entropy=entropy):
            yield found
