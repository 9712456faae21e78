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
    from kipu.ports.head import Head
    from kipu.security.redaction.redactor import Redactor

app = typer.Typer(add_completion=False)


_ADVICE = (
    "what was seen there may be known elsewhere: change these secrets where they are from.",
    "a log is never rewritten. `kipu export ID -o FILE` writes a session without them and `kipu import --as-new FILE` takes it in again;",
    "`kipu erase ID --yes` then removes the one with them, its forks too where that is asked for.",
)


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

    The secrets of this environment and of the configuration are looked for too, and what its own rules say. Nothing is changed.
    """
    invocation = begin(context, store=store, json=json)
    if invocation.run(_scan(invocation, session, entropy=entropy)):
        raise typer.Exit(ExitCode.FAILURE)


async def _scan(invocation: Invocation, text: str | None, *, entropy: bool) -> int:
    """Return how many secrets were found, and sessions could not be looked at."""
    from kipu.cli.progress import progress_bar
    from kipu.cli.redaction_settings import redactor_of
    from kipu.cli.reference import find_session
    from kipu.errors import StoreError

    output, redactor = invocation.output, redactor_of(invocation.settings, os.environ)
    rows: list[dict[str, Any]] = []
    unreadable: dict[str, str] = {}
    async with invocation.manager() as manager:
        heads = [(await find_session(manager, text)).head] if text is not None else await _all_heads(manager)
        session_id = heads[0].session_id if text is not None else None
        with progress_bar(output, "scanning", unit="sessions") as bar:
            bar.expect(len(heads))
            for number, head in enumerate(heads, 1):
                try:
                    rows += [each.to_json() async for each in _scanned(manager, head, redactor, entropy=entropy)]
                except StoreError as error:
                    if text is not None:
                        raise
                    unreadable[head.session_id] = error.code
                bar.done(number)
        url = manager.store.describe().url
    certain: int = sum(row["count"] for row in rows if row["rule"] != "entropy")
    for name, code in unreadable.items():
        output.say(f"{name} was not looked at: it cannot be read [{code}]", style="red")
    if output.json:
        told = {"store": url, "session_id": session_id, "secrets": certain, "found": rows, "unreadable": unreadable}
        output.emit(told)
        return certain + len(unreadable)
    columns = ("session", "seq", "type", "field", "rule", "count")
    names = ("session_id", "seq", "event_type", "path", "rule", "count")
    output.table(columns, ([str(row[name]) for name in names] for row in rows))
    output.say(f"{url}: {certain} secrets found" if certain else f"{url}: no secret found")
    if certain:
        for line in _ADVICE:
            output.say(line)
    return certain + len(unreadable)


async def _all_heads(manager: SessionManager) -> list[Head]:
    from kipu.cli.reference import EVERY_STATUS
    from kipu.ports.store import SessionQuery

    statuses = EVERY_STATUS | {"unreadable"}
    return [head async for head in manager.heads(SessionQuery(statuses=statuses, limit=500))]


async def _scanned(
    manager: SessionManager, head: Head, redactor: Redactor, *, entropy: bool
) -> AsyncIterator[Suspicion]:
    from kipu.manager.scanning import scan_session

    async for found in scan_session(manager.store, head, redactor=redactor, entropy=entropy):
        yield found
