"""`kipu search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.manager.searching import SearchHit

app = typer.Typer(add_completion=False)


@app.command("search")
def search(
    context: typer.Context,
    *,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS...", help="All must be in the event; word* finds longer ones.")
    ],
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only in this session.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find events by their words, in any language, newest first. What was acknowledged is found."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_search(invocation, " ".join(words), session, limit))


async def _search(invocation: Invocation, text: str, within: str | None, limit: int) -> None:
    from contextlib import suppress
    from dataclasses import asdict

    from kipu.cli.head_view import moment
    from kipu.cli.progress import progress_bar
    from kipu.cli.reference import find_session
    from kipu.errors import StoreFullError, StoreReadOnlyError

    output = invocation.output
    async with invocation.manager() as manager:
        session_id = (await find_session(manager, within)).session_id if within else None
        # A store that takes in nothing now is searched as far as it is indexed; the search says so.
        with progress_bar(output, "indexing", unit="events") as bar, suppress(StoreReadOnlyError, StoreFullError):
            await manager.catch_up_index(progress=bar.done)
        hits: list[SearchHit] = []
        cursor = None
        while len(hits) < limit:
            page = await manager.search(text, session_id=session_id, limit=min(limit - len(hits), 200), cursor=cursor)
            hits.extend(page.items)
            cursor = page.cursor
            if cursor is None:
                break
    if output.json:
        output.emit([asdict(hit) for hit in hits])
        return
    rows = ((hit.session_id, str(hit.seq), moment(hit.timestamp), hit.event_type, hit.snippet) for hit in hits)
    output.table(("id", "seq", "time", "type", "text"), rows)
    if not hits:
        output.say("nothing found")
