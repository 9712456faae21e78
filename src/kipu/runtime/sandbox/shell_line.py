"""What is executed for a command line: the limits of the kernel, then the shell."""

from __future__ import annotations

import shutil

from kipu.runtime.sandbox.limits import CommandLimits

# Says on standard input, a socket, that it is there, and goes on only when it is told to.
AWAIT = "echo >&0 && read -r go <&0 || exit 125; exec </dev/null; "


def limited_shell(command: str, limits: CommandLimits, *, max_tasks: int, is_awaiting: bool = False) -> list[str]:
    """Return the arguments that set the limits and become the shell that reads `command`.

    With `is_awaiting` it first waits for a word through standard input, and ends when nobody is there to say it.
    """
    shell = shutil.which("bash", path="/usr/bin:/bin:/usr/local/bin") or "/bin/sh"
    script = (AWAIT if is_awaiting else "") + _limit_script(limits, max_tasks)
    return ["/bin/sh", "-c", script, "sh", shell, "-c", command]


def _limit_script(limits: CommandLimits, max_tasks: int) -> str:
    # -f counts in 512 bytes, -d in kilobytes; shells that call the number of processes -p have another -u or none.
    steps = [
        "ulimit -c 0",
        f"ulimit -f {limits.file_bytes // 512}",
        f"ulimit -d {limits.process_memory_bytes // 1024}",
        f"ulimit -n {limits.open_files}",
        f"{{ ulimit -u {max_tasks} || ulimit -p {max_tasks}; }}",
    ]
    if limits.cpu_s is not None:
        # Its own limit ends it by SIGXCPU, which can be told from other ends; who ignores that is killed.
        steps += [f"ulimit -S -t {limits.cpu_s}", f"ulimit -H -t {limits.cpu_s + 2}"]
    return "".join(f"{step} 2>/dev/null; " for step in steps) + 'exec "$@"'
