"""`kipu copy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption

if TYPE_CHECKING:
    from kipu.manager.copying import CopyReport

app = typer.Typer(add_completion=False)


@app.command("copy")
def copy(
    context: typer.Context,
    *,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store to copy from; it is only read.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The store to copy to, made if it is not there.")],
    session: Annotated[
        list[str] | None,
        typer.Option("--session", metavar="ID", help="Only this one and what it was forked from; may be repeated."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Read back what was written.")] = True,
    json: JsonOption = False,
) -> None:
    """Copy a store, verified event by event. Stopped and run again it goes on; run later it adds what is new."""
    invocation = begin(context, json=json)
    if invocation.run(_copy(invocation, source, target=target, sessions=session, verify=verify)):
        raise typer.Exit(ExitCode.FAILURE)


async def _copy(invocation: Invocation, source: str, *, target: str, sessions: list[str] | None, verify: bool) -> bool:
    """Copy, and return True when something was left out."""
    from contextlib import AsyncExitStack

    from kipu.cli.place import require_place
    from kipu.cli.progress import progress_bar
    from kipu.errors import CopyMismatchError, InputError
    from kipu.manager.copying import CopyProgress, copy_store
    from kipu.memory.moving import copy_memory
    from kipu.store_url import StoreUrl
    from kipu.stores.host import this_process_owner
    from kipu.wiring import memory_store_of, open_store

    begins, ends = StoreUrl.parse(source), StoreUrl.parse(target)
    if begins.kind == ends.kind != "memory" and begins.path.absolute() == ends.path.absolute():
        raise InputError(reason="both stores are the same")
    require_place(source, create=False)
    require_place(target, create=True)
    async with AsyncExitStack() as stack:
        stores = []
        for url in (source, target):
            opened = await open_store(url, find_keys=invocation.find_keys, archive=invocation.settings["archive"])
            stack.push_async_callback(opened.close)
            stores.append(opened)
        bar = stack.enter_context(progress_bar(invocation.output, "copying", unit="events"))

        def moved(progress: CopyProgress) -> None:
            bar.expect(progress.events_total)
            bar.done(progress.events_done)

        try:
            report = await copy_store(
                stores[0], stores[1], owner=this_process_owner("copy"), progress=moved, sessions=sessions, verify=verify
            )
        except CopyMismatchError as error:
            if (done := error.data.get("report")) is not None:
                _tell(invocation, done)
            raise
        if sessions is None:
            memories = [memory_store_of(url, opened) for url, opened in zip((source, target), stores, strict=True)]
            for memory in memories:
                stack.push_async_callback(memory.close)
            await copy_memory(*memories)
    _tell(invocation, report)
    return bool(report.skipped)


def _tell(invocation: Invocation, report: CopyReport) -> None:
    from dataclasses import asdict

    output = invocation.output
    for note in report.notes:
        output.say(note, style="yellow")
    for skipped in report.skipped:
        output.say(f"left out {skipped.session_id}: {skipped.reason} [{skipped.code}]", style="red")
    if report.lost:
        output.say(f"{report.lost} records are lost in the source; `damaged` events stand for them", style="yellow")
    if output.json:
        output.emit(asdict(report))
        return
    output.say(
        f"{report.sessions} sessions are the same in both stores ({report.unchanged} were before); "
        f"added {report.events} events, {report.blobs} blobs, {report.bindings} keys"
    )
