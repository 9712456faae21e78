"""`kipu copy`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption

if TYPE_CHECKING:
    from kipu.cli.store_move import MoveWishes
    from kipu.manager.copying import CopyReport
    from kipu.ports.store import EventStore

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
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on copying what changes in FROM while it is used, until Ctrl-C.")
    ] = False,
    cut_over: Annotated[
        bool, typer.Option("--cut-over", help="Copy while FROM is used, then end its use and make TO the store.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Let FROM be used again after a cut-over that was stopped.")
    ] = False,
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0, help="With --cut-over: give running turns so long to end.")
    ] = 30.0,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="With --cut-over: leave behind sessions that cannot be copied.")
    ] = False,
    decrypt: Annotated[
        bool, typer.Option("--decrypt", help="Copy an encrypted store to one that is not, where anybody can read it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy a store, verified event by event. Stopped and run again it goes on; run later it adds what is new."""
    invocation = begin(context, json=json)
    wishes: MoveWishes | None = None
    if follow or cut_over or cancel:
        from kipu.cli.store_move import MoveWishes, move

        wishes = MoveWishes(cut_over=cut_over, cancel=cancel, wait_s=wait_s, leave_out=leave_out, decrypt=decrypt)
        wishes.require_alone(sessions=session, verify=verify, follow=follow)
        failed = invocation.run(move(invocation, source, target=target, wishes=wishes))
    else:
        work = _copy(invocation, source, target=target, sessions=session, verify=verify, decrypt=decrypt)
        failed = invocation.run(work)
    if failed:
        raise typer.Exit(ExitCode.FAILURE)


async def open_both(
    invocation: Invocation, stack: AsyncExitStack, *, source: str, target: str, decrypt: bool
) -> tuple[EventStore, EventStore]:
    """Open both stores until the stack is closed. Raises: InputError, StoreNotFoundError, CopyUnsealsError."""
    from kipu.cli.place import is_same_place, require_place
    from kipu.errors import CopyUnsealsError, InputError
    from kipu.store_parts import keys_of
    from kipu.wiring import open_store

    if is_same_place(source, target):
        raise InputError(reason="both stores are the same")
    require_place(source, create=False)
    require_place(target, create=True)
    stores = []
    for url in (source, target):
        opened = await open_store(url, find_keys=invocation.find_keys, archive=invocation.settings["archive"])
        stack.push_async_callback(opened.close)
        stores.append(opened)
    if keys_of(stores[0]) is not None and keys_of(stores[1]) is None and not decrypt:
        raise CopyUnsealsError(store=stores[0].describe().url, other=stores[1].describe().url)
    return stores[0], stores[1]


async def _copy(
    invocation: Invocation, source: str, *, target: str, sessions: list[str] | None, verify: bool, decrypt: bool
) -> bool:
    """Copy, and return True where the target is not all that the source once was."""
    from kipu.cli.progress import progress_bar
    from kipu.errors import CopyMismatchError
    from kipu.manager.copying import CopyProgress, copy_store
    from kipu.memory.moving import copy_memory
    from kipu.stores.host import this_process_owner
    from kipu.wiring import memory_store_of

    async with AsyncExitStack() as stack:
        stores = await open_both(invocation, stack, source=source, target=target, decrypt=decrypt)
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
                tell_copied(invocation, done)
            raise
        if sessions is None:
            memories = [memory_store_of(url, opened) for url, opened in zip((source, target), stores, strict=True)]
            for memory in memories:
                stack.push_async_callback(memory.close)
            await copy_memory(*memories)
    tell_copied(invocation, report)
    return bool(report.skipped or report.lost)


def tell_copied(invocation: Invocation, report: CopyReport) -> None:
    """Say what a copy did."""
    from dataclasses import asdict

    output = invocation.output
    tell_left_out(invocation, report)
    if output.json:
        output.emit(asdict(report))
        return
    output.say(
        f"{report.sessions} sessions are the same in both stores ({report.unchanged} were before); "
        f"added {report.events} events, {report.blobs} blobs, {report.bindings} keys"
    )


def tell_left_out(invocation: Invocation, report: CopyReport) -> None:
    """Say what a copy could not take as it was."""
    output = invocation.output
    for note in report.notes:
        output.say(note, style="yellow")
    for skipped in report.skipped:
        output.say(f"left out {skipped.session_id}: {skipped.reason} [{skipped.code}]", style="red")
    if report.lost:
        output.say(f"{report.lost} records are lost in the source; `damaged` events stand for them", style="yellow")
