"""The `shell` tool: a command line in the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kipu.errors import SandboxError
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.sandbox import CommandRequest, SandboxReport
from kipu.runtime.tools.shell_process import ShellProcess
from kipu.runtime.tools.shell_process_table import ProcessTable
from kipu.runtime.tools.shell_result import command_result, end_note

FIRST_OUTPUT_WAIT_S = 1.0
FIRST_OUTPUT_BYTES = 8_000
# The kernel passes on 128 kB as one argument.
MAX_COMMAND_BYTES = 120_000
# The tool ends its commands itself; the loop's limit only catches a tool that does not.
SPARE_S = 60.0


class ShellTool:
    """Run command lines in the session's sandbox, with `root` as the directory they start from.

    Policies may ask `is_sandboxed`: the declared policy is `ask` either way.
    """

    def __init__(self, root: Path, table: ProcessTable) -> None:
        self._root = root.resolve()
        self._table = table
        self._spec = _spec(table.sandbox.report, table.limits)

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return self._spec

    @property
    def is_sandboxed(self) -> bool:
        """Tell whether commands are shut in."""
        return self._table.sandbox.report.is_in_force

    def subject(self, arguments: JsonObject) -> str:
        """Return the command line."""
        return str(arguments.get("command", ""))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return the command line, where it runs, and that nothing shuts it in where that is so."""
        del context
        where = str(arguments.get("cwd") or ".")
        parts = [self.subject(arguments)]
        parts += [f"(in {where})"] if where != "." else []
        parts += ["(in the background)"] if arguments.get("background") else []
        if not self.is_sandboxed:
            parts.append("(without a sandbox)")
        return ToolPreview(" ".join(parts))

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Run the command to its end, or until its first output in the background."""
        directory = self._directory(str(arguments.get("cwd") or "."))
        if isinstance(directory, ToolResult):
            return directory
        request = CommandRequest(
            command=str(arguments["command"]),
            directory=directory,
            environment={**context.environment, **context.credentials},
            limits=self._table.limits,
        )
        refused = _unusable(request.command)
        if refused is not None:
            return refused
        try:
            if arguments.get("background"):
                return await self._run_background(request, arguments, context)
            return await self._run_foreground(request, arguments, context)
        except SandboxError as error:
            return _error(str(error), error.code)

    async def aclose(self) -> None:
        """End everything that runs."""
        await self._table.aclose()
        await asyncio.to_thread(self._table.sandbox.clean)

    async def _run_foreground(self, request: CommandRequest, arguments: JsonObject, context: ToolContext) -> ToolResult:
        limits = request.limits
        timeout_s = min(float(arguments.get("timeout_s") or limits.wall_s), limits.max_wall_s)
        process = await self._table.start(request, emit=context.emit)
        try:
            async with asyncio.timeout(timeout_s):
                await process.ended()
        except TimeoutError:
            await process.stop("timeout")
        finally:
            # For a caller who is cancelled, too.
            await process.stop("cancelled")
            self._table.leave(process)
        notes = await asyncio.to_thread(self._table.sandbox.clean)
        return command_result(process, limits, timeout_s=timeout_s, notes=notes)

    async def _run_background(self, request: CommandRequest, arguments: JsonObject, context: ToolContext) -> ToolResult:
        if self._table.running_count() >= request.limits.background_processes:
            return _error(
                f"{request.limits.background_processes} background processes run already; end one with process_kill.",
                "too_many",
            )
        process = await self._table.start(request, emit=context.emit)
        entry = self._table.adopt(process, description=str(arguments.get("description") or ""))
        try:
            await _first_output(process)
        except asyncio.CancelledError:
            await process.stop("cancelled", grace_s=0)
            raise
        part = process.output.read(0, max_bytes=FIRST_OUTPUT_BYTES)
        entry.next_offset = part.next_offset
        process_state = "runs in the background"
        if not process.is_running:
            process_state = f"has ended with exit code {process.exit_code}"
        note = end_note(process, request.limits)
        notes = await asyncio.to_thread(self._table.sandbox.clean)
        lines = [
            f"process {entry.process_id} {process_state}",
            *([note] if note else []),
            *notes,
            "",
            part.text or "(no output yet)",
        ]
        is_error = not process.is_running and process.exit_code != 0
        return ToolResult("\n".join(lines), is_error=is_error, error_info="exit_code" if is_error else None)

    def _directory(self, cwd: str) -> Path | ToolResult:
        try:
            place = (self._root / cwd).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            return _error(f"{cwd!r} is no directory: {error}.", "not_found")
        if not place.is_relative_to(self._root):
            return _error(f"{cwd!r} is outside the workspace.", "path_outside")
        if not place.is_dir():
            return _error(f"There is no directory {cwd!r} in the workspace.", "not_found")
        return place


def _unusable(command: str) -> ToolResult | None:
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return _error("The command line holds half a character, which cannot be passed on.", "invalid")
    if "\0" in command:
        return _error("A command line cannot contain NUL.", "invalid")
    if size > MAX_COMMAND_BYTES:
        return _error(
            f"The command line has more than {MAX_COMMAND_BYTES} bytes; write a script and run that.", "too_long"
        )
    return None


async def _first_output(process: ShellProcess) -> None:
    ending = asyncio.ensure_future(process.ended())
    speaking = asyncio.ensure_future(process.changed.wait())
    try:
        await asyncio.wait([ending, speaking], timeout=FIRST_OUTPUT_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        # What fails at once mostly says so and ends: wait a moment for the end.
        await asyncio.wait([ending], timeout=0.1)
    finally:
        ending.cancel()
        speaking.cancel()


def _error(text: str, word: str) -> ToolResult:
    return ToolResult(text, is_error=True, error_info=word)


def _spec(report: SandboxReport, limits: CommandLimits) -> ToolSpec:
    return ToolSpec(
        name="shell",
        description=(
            "Run a command line with bash in the workspace and return its exit code and output. Standard input is empty. "
            "When it ends, everything it started is ended too: for servers and watchers use background: true, which returns a "
            f"process id for process_output and process_kill. {report.sentence()}"
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "The command line."},
                "cwd": {
                    "type": "string",
                    "description": "Where to run it, relative to the workspace. Default: its root.",
                },
                "timeout_s": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": limits.max_wall_s,
                    "description": f"When to end it. Default: {limits.wall_s:g}. Not for background processes.",
                },
                "background": {"type": "boolean", "description": "Return at once and let it run. Default: false."},
                "description": {"type": "string", "description": "What it is for, in a few words, for people."},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        is_idempotent=False,
        has_side_effect=True,
        # Shut in without network a command changes the workspace only, which a checkpoint brings back.
        is_external=report.has_network or not report.is_in_force,
        default_policy="ask",
        timeout_s=limits.max_wall_s + limits.grace_s + SPARE_S,
    )
