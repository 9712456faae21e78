"""`process_output`, `process_kill` and `process_list`: what a model does with its background processes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.tools.shell_process_table import BackgroundProcess, ProcessTable
from kipu.runtime.tools.shell_result import end_note

MAX_READ_BYTES = 30_000
MAX_WAIT_S = 60.0
PROCESS_ID = {"type": "string", "description": "The id that shell returned, such as p1."}


class ProcessTool(ABC):
    """What the three share: the table, and the process id as their subject."""

    def __init__(self, declared: ToolSpec, table: ProcessTable) -> None:
        self._spec = declared
        self.table = table

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares."""
        return self._spec

    def subject(self, arguments: JsonObject) -> str:
        """Return the process id."""
        return str(arguments.get("process_id", ""))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return the call as one line, with the command that it is about."""
        del context
        entry = self.table.find(self.subject(arguments))
        command = "" if entry is None else entry.process.command
        return ToolPreview(" ".join([self.spec.name, self.subject(arguments), command]).strip())

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Do it for the process of that id."""
        del context
        entry = self.table.find(self.subject(arguments))
        if entry is None:
            ends = "Background processes end with Kipu, and where another machine goes on"
            text = f"There is no process {self.subject(arguments)!r}. {ends}; process_list shows them."
            return ToolResult(text, is_error=True, error_info="not_found")
        return await self.work(entry, arguments)

    @abstractmethod
    async def work(self, entry: BackgroundProcess, arguments: JsonObject) -> ToolResult:
        """Do it."""

    async def aclose(self) -> None:
        """End everything that runs."""
        await self.table.aclose()


class ProcessOutput(ProcessTool):
    """Read a background process's output from an offset, by default from where it was last read to."""

    def __init__(self, table: ProcessTable) -> None:
        declared = ToolSpec(
            name="process_output",
            description=(
                "Read the output of a background process: what is new since the last reading, or from a byte offset. With "
                "wait_s it waits that long for something new or for the end."
            ),
            parameters={
                "type": "object",
                "properties": {
                    "process_id": PROCESS_ID,
                    "offset": {"type": "integer", "minimum": 0, "description": "The byte to read from."},
                    "wait_s": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "description": "Default: 0."},
                },
                "required": ["process_id"],
                "additionalProperties": False,
            },
            is_idempotent=True,
            has_side_effect=False,
            default_policy="allow",
        )
        super().__init__(declared, table)

    async def work(self, entry: BackgroundProcess, arguments: JsonObject) -> ToolResult:
        """Return its state and the text."""
        offset = int(arguments.get("offset", entry.next_offset))
        await _something_after(offset, entry, wait_s=float(arguments.get("wait_s", 0)))
        part = entry.process.output.read(offset, max_bytes=MAX_READ_BYTES)
        entry.next_offset = part.next_offset
        lines = [f"{_state(entry, self.table)}; output from {part.offset} to {part.next_offset}"]
        left = entry.process.output.total_bytes - part.next_offset
        lines += [f"{part.missing_bytes} bytes before it are not kept"] if part.missing_bytes else []
        lines += [f"{left} more bytes can be read"] if left else []
        return ToolResult("\n".join([*lines, "", part.text or "(nothing new)"]))


class ProcessKill(ProcessTool):
    """End a background process and all it started."""

    def __init__(self, table: ProcessTable) -> None:
        declared = ToolSpec(
            name="process_kill",
            description="End a background process and everything it started.",
            parameters={
                "type": "object",
                "properties": {"process_id": PROCESS_ID},
                "required": ["process_id"],
                "additionalProperties": False,
            },
            is_idempotent=True,
            has_side_effect=True,
            default_policy="allow",
        )
        super().__init__(declared, table)

    async def work(self, entry: BackgroundProcess, arguments: JsonObject) -> ToolResult:
        """End it and say how it ended."""
        del arguments
        await entry.process.stop("killed")
        return ToolResult(_state(entry, self.table))


class ProcessList(ProcessTool):
    """List the session's background processes."""

    def __init__(self, table: ProcessTable) -> None:
        declared = ToolSpec(
            name="process_list",
            description="List the background processes of this session with their state.",
            parameters={"type": "object", "properties": {}, "additionalProperties": False},
            is_idempotent=True,
            has_side_effect=False,
            default_policy="allow",
        )
        super().__init__(declared, table)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Return one line each."""
        del arguments, context
        lines = [f"{_state(entry, self.table)}: {_label(entry)}" for entry in self.table.all()]
        return ToolResult("\n".join(lines) or "There are no background processes.")

    async def work(self, entry: BackgroundProcess, arguments: JsonObject) -> ToolResult:
        """Return the line of one."""
        del arguments
        return ToolResult(f"{_state(entry, self.table)}: {_label(entry)}")


def _label(entry: BackgroundProcess) -> str:
    first = entry.process.command.strip().splitlines()[0] if entry.process.command.strip() else ""
    return f"{entry.description}: {first}" if entry.description else first


def _state(entry: BackgroundProcess, table: ProcessTable) -> str:
    process = entry.process
    if process.is_running:
        return f"process {entry.process_id} runs since {process.duration_s:.1f} s"
    note = end_note(process, table.limits)
    told = f"process {entry.process_id} has ended with exit code {process.exit_code} after {process.duration_s:.1f} s"
    return told if note is None else f"{told}. {note}"


async def _something_after(offset: int, entry: BackgroundProcess, *, wait_s: float) -> None:
    process = entry.process
    if wait_s <= 0:
        return
    try:
        async with asyncio.timeout(wait_s):
            while process.is_running and process.output.total_bytes <= offset:
                process.changed.clear()
                await process.changed.wait()
    except TimeoutError:
        return
