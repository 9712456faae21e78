"""`kipu demo`, its options and how it is shown."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kipu.cli.invocation import begin
from kipu.cli.options import JsonOption
from kipu.interop.printable import printable

if TYPE_CHECKING:
    from kipu.cli.output import Output

app = typer.Typer(add_completion=False)
OUTPUT_LINES = 14
LINE_CHARACTERS = 180
COMMAND_PAUSE_S = 0.4
TITLE_PAUSE_S = 0.8


@app.command("demo")
def demo(
    context: typer.Context,
    *,
    fast: Annotated[bool, typer.Option("--fast", help="Without pauses to read.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder, to look around in it.")] = False,
    sandbox: Annotated[bool, typer.Option(help="Shut commands in with bubblewrap where it works.")] = True,
    json: JsonOption = False,
) -> None:
    """Show what Kipu does, in half a minute: two sessions, tools, an approval, a crash and what comes after it, a fork, search.

    Everything really happens, in a temporary folder with a store of its own and the demo model (no AI, no network).
    """
    from kipu.cli.demo.stage import Stage, report_of
    from kipu.cli.demo.tour import Tour

    invocation = begin(context, json=json)
    output = invocation.output
    began_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kipu-demo-"))
    guide = _Guide(output, is_fast=fast or output.json)
    confined = invocation.run(_sandbox(wanted=sandbox))
    stage = Stage(folder, guide.show, has_sandbox=sandbox)
    stage.prepare()
    guide.say(f"in {folder}, with the demo model (no AI); commands run {confined}")
    facts = Tour(stage).run()
    seconds = time.monotonic() - began_s
    if output.json:
        output.emit(report_of(stage, facts, sandbox=confined, seconds=seconds, kept=keep))
    if keep:
        guide.say(f"everything is in {folder}: KIPU_STORE={stage.store_url} kipu ls")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    guide.say(f"That took {seconds:.0f} s. Begin with: kipu chat   or   kipu run 'list files'")


async def _sandbox(*, wanted: bool) -> str:
    """Return how commands run here, in words."""
    from kipu.runtime.sandbox.probe import probe_bubblewrap

    if not wanted:
        return "without a sandbox: it is switched off"
    probe = await probe_bubblewrap()
    return "in bubblewrap" if probe.path is not None else f"without a sandbox: {probe.reason}"


class _Guide:
    """Show the tour to people; with --json say nothing of it."""

    def __init__(self, output: Output, *, is_fast: bool) -> None:
        self._output = output
        self._is_fast = is_fast

    def show(self, kind: str, text: str) -> None:
        """Show a title, a command, or what it wrote, with time to read it."""
        if self._output.json:
            return
        if kind == "title":
            self._output.line()
            self._output.line(f"# {text}", style="bold cyan")
            self._pause(TITLE_PAUSE_S)
        elif kind == "command":
            self._output.line(f"$ {text}", style="bold")
        else:
            lines = printable(text).splitlines()
            for line in lines[:OUTPUT_LINES]:
                self._output.line(f"  {line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 1] + '…'}")
            if len(lines) > OUTPUT_LINES:
                self._output.line(f"  … {len(lines) - OUTPUT_LINES} more lines", style="dim")
            self._pause(COMMAND_PAUSE_S)
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Say something about the tour itself."""
        if not self._output.json:
            self._output.line(text, style="dim")
            sys.stdout.flush()

    def _pause(self, seconds: float) -> None:
        if not self._is_fast:
            time.sleep(seconds)
