"""`kipu import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

if TYPE_CHECKING:
    from kipu.interop.report import ImportReport

app = typer.Typer(add_completion=False)


@app.command("import")
def import_file(
    context: typer.Context,
    *,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of event lines.")],
    as_new: Annotated[bool, typer.Option("--as-new", help="Give every session a fresh id.")] = False,
    quarantine: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where unreadable lines go (default: beside the source).")
    ] = None,
    blobs: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where export --blobs wrote big values.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=1, help="How much an archive may be unpacked (default: 100 times).")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Import event lines: what kipu export wrote, and plain events without seq, checksum or envelope.

    An archive of kipu export --person is checked as a whole first, and brings sessions and memory back.

    No line stops it: unknown types are kept, unreadable lines are reported and go to quarantine, and
    records = imported + raw + quarantined. Importing twice adds nothing. The source is only read.
    """
    invocation = begin(context, store=store, json=json)
    archives = [file for file in files if _is_archive(file)]
    if archives:
        if len(archives) < len(files) or quarantine is not None or blobs is not None:
            raise typer.BadParameter("archives are imported by themselves, and hold their own blobs")
        invocation.run(_import_people(invocation, archives, as_new=as_new, max_bytes=max_bytes))
        return
    invocation.run(_import(invocation, files, as_new=as_new, quarantine=quarantine, blobs=blobs))


def _is_archive(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(4) in {b"PK\x03\x04", b"PK\x05\x06"}


async def _import_people(invocation: Invocation, archives: list[Path], *, as_new: bool, max_bytes: int | None) -> None:
    from kipu.cli.memory_place import opened_memory
    from kipu.cli.progress import progress_bar
    from kipu.interop.import_person import import_person

    output, records = invocation.output, []
    async with invocation.manager(create=True) as manager, opened_memory(invocation, manager) as memory:
        for file in archives:
            with progress_bar(output, f"importing {file.name}", unit="sessions") as bar:

                def moved(done: int, total: int, bar: Any = bar) -> None:
                    bar.expect(total)
                    bar.done(done)

                done = await import_person(
                    manager, file, memory=memory, as_new=as_new, max_bytes=max_bytes, progress=moved
                )
            for report in done.reports:
                _tell_problems(invocation, report)
            output.say(f"{file}: {done.sessions} sessions, {done.added} events added, {done.facts} facts")
            records.append(
                {
                    "source": str(file),
                    "sessions": done.sessions,
                    "added": done.added,
                    "facts": done.facts,
                    "ids": dict(done.ids),
                }
            )
            if not output.json:
                for session_id in done.ids.values():
                    output.write(session_id + "\n")
    if output.json:
        output.emit(records[0] if len(records) == 1 else records)


async def _import(
    invocation: Invocation, files: list[Path], *, as_new: bool, quarantine: Path | None, blobs: Path | None
) -> None:
    from kipu.cli.progress import progress_bar
    from kipu.errors import ImportFormatError
    from kipu.interop.import_events import import_events

    for file in files:
        if not file.is_file():
            reason = "it is not a regular file" if file.exists() else "there is no such file"
            raise ImportFormatError(source=str(file), reason=reason)
    reports = []
    async with invocation.manager(create=True) as manager:
        for file in files:
            with progress_bar(invocation.output, f"importing {file.name}", unit="bytes") as bar:

                def moved(done: int, total: int, bar: Any = bar) -> None:
                    bar.expect(total)
                    bar.done(done)

                reports.append(
                    await import_events(
                        manager, file, as_new=as_new, quarantine=quarantine, blobs=blobs, progress=moved
                    )
                )
    for report in reports:
        _tell(invocation, report)
    if invocation.json:
        records = [report_json(report) for report in reports]
        invocation.output.emit(records[0] if len(records) == 1 else records)
    if any(report.records and report.quarantined == report.records for report in reports):
        raise typer.Exit(ExitCode.FAILURE)  # nothing of a file could be used: it was another kind of file


def report_json(report: ImportReport) -> dict[str, Any]:
    """Return the account of an import as JSON."""
    from dataclasses import asdict

    record = asdict(report)
    record["quarantine"] = str(report.quarantine) if report.quarantine is not None else None
    return record


def _tell_problems(invocation: Invocation, report: ImportReport) -> None:
    for problem in report.problems:
        invocation.output.say(
            f"{report.source}: byte {problem.offset}+{problem.length}: {problem.kind}: {problem.reason}", style="yellow"
        )


def _tell(invocation: Invocation, report: ImportReport) -> None:
    output = invocation.output
    _tell_problems(invocation, report)
    output.say(
        f"{report.source}: {report.records} records = {report.imported} imported + {report.raw} raw + "
        f"{report.quarantined} quarantined; {report.added} events added"
    )
    if report.quarantine is not None:
        output.say(f"unreadable lines are kept in {report.quarantine}", style="yellow")
    if not output.json:
        for session in report.sessions:
            output.write(session.session_id + "\n")
