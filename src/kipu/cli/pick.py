"""`kipu pick`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from kipu.cli.exit_code import ExitCode
from kipu.cli.invocation import Invocation, begin
from kipu.cli.options import JsonOption, StoreOption

app = typer.Typer(add_completion=False)


@app.command("pick")
def pick(context: typer.Context, *, store: StoreOption = None, json: JsonOption = False) -> None:
    """Pick a session on a full screen with a preview and print its id: kipu show $(kipu pick). Ends with 3 when left."""
    invocation = begin(context, store=store, json=json)
    picked = invocation.run(_pick(invocation))
    if picked is None:
        raise typer.Exit(ExitCode.NOT_FOUND)
    if invocation.json:
        invocation.output.emit({"session_id": picked})
    else:
        invocation.output.write(picked + "\n")


async def _pick(invocation: Invocation) -> str | None:
    from kipu.cli.picker import pick_session
    from kipu.errors import InputError

    # Textual draws on stderr, so that stdout can be captured.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(reason="kipu pick needs a terminal; list sessions with kipu ls")
    async with invocation.manager() as manager:
        with _stdout_on_the_terminal():
            return await pick_session(manager)


@contextmanager
def _stdout_on_the_terminal() -> Iterator[None]:
    """Let stdout be the terminal meanwhile: the screen's size is asked of it, and would be 80 by 24 of a pipe."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
