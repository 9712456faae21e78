"""`kipu archive` and `kipu unarchive`: one file a session, out of the store and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, SessionArgument, StoreOption

if TYPE_CHECKING:
    from kipu.manager.lifecycle.archiver import Archived

app = typer.Typer(add_completion=False)


@app.command("archive")
def archive(
    context: typer.Context,
    *,
    session: SessionArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PLACE", help="A folder, or s3://bucket/folder (default: beside the store)."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Move a session's events into one compressed file. It stays listed, searched and readable; `kipu unarchive` brings it back."""
    invocation = begin(context, store=store, json=json)
    invocation.run(_archive(invocation, session, to))


async def _archive(invocation: Invocation, text: str, to: str | None) -> None:
    from kipu.cli.progress import progress_bar
    from kipu.cli.reference import find_head
    from kipu.manager.access import Verb
    from kipu.manager.lifecycle.session_archives import SessionArchives

    async with invocation.manager() as manager:
        session_id = await find_head(manager, text, verb=Verb.CONFIGURE)
        with progress_bar(invocation.output, "archiving", unit="events") as bar:

            def moved(done: int, total: int) -> None:
                bar.expect(total)
                bar.done(done)

            done = await SessionArchives(manager).archive(session_id, to=to, progress=moved)
    what = f"{done.events} events, {done.blobs} blobs, {done.bytes} bytes in {done.place}/{done.name}"
    _tell(invocation, done, f"{session_id} is {'now' if done.changed else 'already'} archived: {what}")


@app.command("unarchive")
def unarchive(
    context: typer.Context,
    *,
    session: SessionArgument,
    source: Annotated[
        str | None, typer.Option("--from", metavar="PLACE", help="Where its file is now, if it was moved.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the file where it is.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Bring an archived session back into the store, under its own id, with everything that came in meanwhile.

    By its whole id and --from, one comes back too whose store was lost: its file is enough.
    """
    invocation = begin(context, store=store, json=json)
    invocation.run(_unarchive(invocation, session, source, keep=keep))


async def _unarchive(invocation: Invocation, text: str, source: str | None, *, keep: bool) -> None:
    from kipu.cli.reference import find_head, may_be_id
    from kipu.errors import SessionNotFoundError
    from kipu.manager.access import Verb
    from kipu.manager.lifecycle.session_archives import SessionArchives

    async with invocation.manager() as manager:
        try:
            session_id = await find_head(manager, text, verb=Verb.CONFIGURE)
        except SessionNotFoundError:
            if not may_be_id(text):
                raise
            session_id = text  # by its whole id one is found whose file is all that is left of it
        done = await SessionArchives(manager).unarchive(session_id, source=source, keep_file=keep)
    back = f"back: {done.events} events, {done.blobs} blobs" if done.changed else "active; its events were in the store"
    _tell(invocation, done, f"{session_id} is {back}")


def _tell(invocation: Invocation, done: Archived, said: str) -> None:
    if invocation.json:
        invocation.output.emit(asdict(done))
    else:
        invocation.output.say(said)
