"""`kipu export`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.completion import complete_session
from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kipu.manager.session import Session
    from kipu.security.redaction.redactor import Redactor

app = typer.Typer(add_completion=False)


class Format(StrEnum):
    """A form of export."""

    JSONL = "jsonl"
    MARKDOWN = "markdown"
    HTML = "html"


_ENDINGS = {
    ".jsonl": Format.JSONL,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
}
_ENDING_OF = {Format.JSONL: ".jsonl", Format.MARKDOWN: ".md", Format.HTML: ".html"}


@app.command("export")
def export(
    context: typer.Context,
    *,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="A session id, a unique part of one, or a key.", autocompletion=complete_session
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every session, one file each, into the folder of --output.")
    ] = False,
    person: Annotated[
        str | None, typer.Option("--person", metavar="ID", help="All that this person owns, as one ZIP archive.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", metavar="T", help="The tenant of the person.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "--to", "-o", metavar="FILE", help="Where to (default: stdout).")
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--format", "-f", help="Default: what the file's ending says, else jsonl.")
    ] = None,
    blobs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write big values there, named by digest.")
    ] = None,
    inline_blobs: Annotated[
        bool, typer.Option("--inline-blobs", help="Put big values into the lines (jsonl).")
    ] = False,
    redact: Annotated[
        bool | None, typer.Option("--redact/--no-redact", help="Leave secrets out (default: as the setting says).")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a session as JSON lines (which kipu import reads), as Markdown, or as one HTML page without scripts.

    With --person, all of a person's sessions in all three forms, their blobs and memory, as one archive that kipu import reads.
    """
    if (session is not None) + every + (person is not None) != 1:
        raise typer.BadParameter("give one session, --all, or --person")
    if person == "":  # a variable that is not set
        raise typer.BadParameter("--person is empty; name the person")
    if person is not None:
        _require_archive(
            output, has_form=form is not None or blobs is not None or inline_blobs, is_redacted=bool(redact)
        )
        invocation = begin(context, store=store, json=json)
        invocation.run(_export_person(invocation, person, tenant=tenant, path=output or Path()))
        return
    if every and output is None:
        raise typer.BadParameter("--all needs a folder: --output FOLDER")
    if json and output is None:
        raise typer.BadParameter("--json reports on a file: give --output")
    chosen = form or (_ENDINGS.get(output.suffix.lower()) if output is not None else None) or Format.JSONL
    invocation = begin(context, store=store, json=json)
    for folder in (output if every else None, blobs):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    work = _Export(invocation, chosen, blobs=blobs, inline_blobs=inline_blobs, redactor=_redactor(invocation, redact))
    invocation.run(work.every(output or Path()) if every else work.one(session or "", output))


def _require_archive(output: Path | None, *, has_form: bool, is_redacted: bool) -> None:
    if is_redacted:
        raise typer.BadParameter("--person writes all that is kept, as it is kept: it has no --redact")
    if output is None or has_form:
        raise typer.BadParameter("--person writes one archive of every form: --to FILE, and no other form")


async def _export_person(invocation: Invocation, person: str, *, tenant: str, path: Path) -> None:
    from dataclasses import asdict

    from kipu.cli.erasing import operator
    from kipu.cli.memory_place import opened_memory
    from kipu.cli.progress import progress_bar
    from kipu.interop.export_person import export_person
    from kipu.ports.principal import Principal

    output = invocation.output
    async with invocation.manager() as manager, opened_memory(invocation, manager) as memory:
        with progress_bar(output, "exporting", unit="sessions") as bar:

            def moved(done: int, total: int) -> None:
                bar.expect(total)
                bar.done(done)

            whose = Principal(person, tenant)
            done = await export_person(
                manager, whose, to=path, memory=memory, progress=moved, principal=operator(tenant)
            )
    for session_id, code in done.unreadable.items():
        output.say(f"{session_id} is not in it: it cannot be read [{code}]", style="red")
    if output.json:
        output.emit({**asdict(done), "file": str(path)})
    else:
        told = f"{done.sessions} sessions, {done.events} events, {done.blobs} blobs, {done.facts} facts"
        output.say(f"{told}, {done.elsewhere} messages elsewhere → {path} ({done.bytes} bytes)")
    if done.unreadable:
        raise typer.Exit(ExitCode.FAILURE)


def _redactor(invocation: Invocation, wanted: bool | None) -> Redactor | None:
    """Return what takes secrets out of what was stored before it was taken out at once, or elsewhere."""
    from kipu.cli.redaction_settings import redactor_of

    if wanted is False or (wanted is None and invocation.settings["redaction"] == "off"):
        return None
    return redactor_of(invocation.settings, os.environ)


class _Export:
    def __init__(
        self,
        invocation: Invocation,
        form: Format,
        *,
        blobs: Path | None,
        inline_blobs: bool,
        redactor: Redactor | None,
    ) -> None:
        self._redactor = redactor
        self._invocation = invocation
        self._form = form
        self._blobs = blobs
        self._inline_blobs = inline_blobs

    async def one(self, text: str, path: Path | None) -> None:
        """Export one session to a file or to stdout."""
        from kipu.cli.reference import find_session

        async with self._invocation.manager() as manager:
            session = await find_session(manager, text)
            if path is None:
                await self._to_stdout(session)
                return
            record = await self._to_file(session, path)
        if self._invocation.json:
            self._invocation.output.emit(record)
        else:
            self._invocation.output.say(f"{record['session_id']} → {path} ({record['bytes']} bytes)")

    async def every(self, folder: Path) -> None:
        """Export every session into a folder; one that cannot be read is named, and keeps no other from being exported."""
        from kipu.cli.progress import progress_bar
        from kipu.errors import StoreError

        records: list[dict[str, Any]] = []
        unreadable: dict[str, str] = {}
        async with self._invocation.manager() as manager:
            heads = [head async for head in manager.heads(_everything())]
            with progress_bar(self._invocation.output, "exporting", unit="sessions") as bar:
                bar.expect(len(heads))
                for head in heads:
                    try:
                        session = await manager.open(head.session_id)
                        path = folder / f"{head.session_id}{_ENDING_OF[self._form]}"
                        records.append(await self._to_file(session, path))
                    except StoreError as error:
                        unreadable[head.session_id] = error.code
                    bar.done(len(records) + len(unreadable))
        for session_id, code in unreadable.items():
            self._invocation.output.say(f"{session_id} is not among them: it cannot be read [{code}]", style="red")
        if self._invocation.json:
            self._invocation.output.emit(records)
        else:
            self._invocation.output.say(f"{len(records)} sessions → {folder}")
        if unreadable:
            raise typer.Exit(ExitCode.FAILURE)

    async def _to_stdout(self, session: Session) -> None:
        import sys

        async for chunk in self._chunks(session):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        await self._write_blobs(session)

    async def _to_file(self, session: Session, path: Path) -> dict[str, Any]:
        from kipu.interop.export_file import write_whole

        size = await write_whole(path, self._chunks(session))
        blobs = await self._write_blobs(session)
        return {
            "session_id": session.session_id,
            "file": str(path),
            "format": self._form.value,
            "bytes": size,
            "blobs": blobs,
        }

    def _chunks(self, session: Session) -> AsyncIterator[bytes]:
        if self._form is Format.MARKDOWN:
            from kipu.interop.export_markdown import export_markdown

            return export_markdown(session, redactor=self._redactor)
        if self._form is Format.HTML:
            from kipu.interop.export_html import export_html

            return export_html(session, redactor=self._redactor)
        from kipu.interop.export_jsonl import export_jsonl

        return export_jsonl(session, inline_blobs=self._inline_blobs, redactor=self._redactor)

    async def _write_blobs(self, session: Session) -> int:
        if self._blobs is None:
            return 0
        from kipu.interop.export_jsonl import export_blobs

        return await export_blobs(session, directory=self._blobs, redactor=self._redactor)


def _everything() -> Any:
    from kipu.cli.reference import EVERY_STATUS
    from kipu.ports.store import SessionQuery

    return SessionQuery(limit=500, statuses=EVERY_STATUS | {"unreadable"})
