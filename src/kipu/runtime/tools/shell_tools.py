"""The tools around commands, as one session gets them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kipu.ports.tool import Tool
from kipu.runtime.sandbox.limits import CommandLimits
from kipu.runtime.sandbox.sandbox import Sandbox
from kipu.runtime.tools.shell import ShellTool
from kipu.runtime.tools.shell_process_table import ProcessTable
from kipu.runtime.tools.shell_process_tools import ProcessKill, ProcessList, ProcessOutput


@dataclass(frozen=True, slots=True)
class ShellTools:
    """Hold `shell` and the tools for its background processes; closing any of them closes all."""

    shell: ShellTool
    output: ProcessOutput
    kill: ProcessKill
    list: ProcessList

    def all(self) -> tuple[Tool, ...]:
        """Return them for the loop."""
        return (self.shell, self.output, self.kill, self.list)

    async def aclose(self) -> None:
        """End everything that runs, wait until it is gone, and remove the session's temporary files (B49)."""
        await self.shell.aclose()


def shell_tools(root: Path, sandbox: Sandbox, *, limits: CommandLimits | None = None) -> ShellTools:
    """Return the tools of a session whose workspace is `root`; they own the sandbox from here on."""
    table = ProcessTable(sandbox, CommandLimits() if limits is None else limits)
    return ShellTools(
        shell=ShellTool(root, table), output=ProcessOutput(table), kill=ProcessKill(table), list=ProcessList(table)
    )
