"""How a command's end is told to a model."""

from __future__ import annotations

from collections.abc import Sequence

from kipu.ports.tool import ToolResult
from kipu.runtime.sandbox.limits import MIB, CommandLimits
from kipu.runtime.tools.shell_process import ShellProcess

KILLED_BY_CPU, KILLED_BY_FILE_SIZE, KILLED = 128 + 24, 128 + 25, 128 + 9


def command_result(
    process: ShellProcess, limits: CommandLimits, *, timeout_s: float, notes: Sequence[str] = ()
) -> ToolResult:
    """Return the result of a command that has ended: its exit code, why it ended if that was not its own, its output.

    Anything but exit code 0 is an error; `error_info` is `exit_code`, or the name of the limit that ended it.
    """
    note = end_note(process, limits, timeout_s=timeout_s)
    lines = [f"exit code {process.exit_code} after {process.duration_s:.1f} s"]
    lines += [note, *notes] if note is not None else notes
    output = process.output.text()
    content = "\n".join([*lines, "", output or "(no output)"])
    if process.end_reason is not None:
        return ToolResult(content, is_error=True, error_info=process.end_reason)
    is_error = process.exit_code != 0
    return ToolResult(content, is_error=is_error, error_info="exit_code" if is_error else None)


def end_note(process: ShellProcess, limits: CommandLimits, *, timeout_s: float | None = None) -> str | None:
    """Return a sentence on what ended a command, None when it ended by itself."""
    reason = process.end_reason
    if reason is not None:
        told = {
            "timeout": (
                f"It was ended after its time limit of {timeout_s} s. Give a longer timeout_s (at most "
                f"{limits.max_wall_s:g}), or background: true."
            ),
            "memory": f"It was ended because its processes used more than {limits.memory_bytes // MIB} MiB of memory.",
            "processes": f"It was ended because it ran more than {limits.processes} processes.",
            "disk": f"It was ended because it wrote more than {limits.growth_bytes // MIB} MiB.",
            "files": f"It was ended because it made more than {limits.new_files} files.",
            "cancelled": "It was cancelled.",
            "killed": "It was ended by process_kill.",
            "closed": "It was ended with the session.",
        }
        return told[reason]
    if process.exit_code == KILLED_BY_CPU:
        return f"It used more than {limits.cpu_s} s of processor time."
    if process.exit_code == KILLED_BY_FILE_SIZE:
        return f"It wrote a file of more than {limits.file_bytes // MIB} MiB."
    if process.exit_code == KILLED:
        return "It was killed (signal 9), perhaps for want of memory."
    return None
