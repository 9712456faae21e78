"""The process between Kipu and a command without a sandbox: whatever the command starts, this ends.

Run as a script by itself (`python -I -S`), so it imports nothing of Kipu. It reads one line of JSON from standard input; when
standard input ends, because Kipu closed it or died, everything below this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
from typing import Any, NoReturn

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the command that standard input names, and end as it ended."""
    request = json.loads(_read_line(0))
    _adopt_orphans()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        _become(request)
    # Only the command holds the output open, so that its end is seen.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    code = _follow(child, woken)
    _kill_all(child)
    os._exit(code)


def _read_line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(descriptor, 65536)
        if not part:
            os._exit(125)
        line += part
    return line


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _become(request: dict[str, Any]) -> NoReturn:
    try:
        os.setsid()
        if request["namespace"] is not None:
            _enter(request["namespace"])
        os.chdir(request["directory"])
        user = request["user_id"]
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, 256)
        os.execve(request["arguments"][0], request["arguments"], request["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"the command cannot be started: {error}\n".encode())
    finally:
        os._exit(126)


def _enter(namespace: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _follow(child: int, woken: int) -> int:
    """Return the command's exit code, or that of a killed one when nobody is there any more."""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready and not os.read(0, 65536):
            return 137
        if woken in ready:
            os.read(woken, 65536)
        ended = _reap()
        if child in ended:
            return ended[child]


def _reap() -> dict[int, int]:
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[process] = code if code >= 0 else 128 - code
    return ended


def _kill_all(child: int) -> None:
    """Kill until nothing is below this process: first whole groups, which the kernel does without a gap."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    while True:
        _reap()
        left = _descendants()
        if not left:
            return
        own_group = os.getpgrp()
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(process)
                if group != own_group:
                    os.killpg(group, signal.SIGKILL)
                os.kill(process, signal.SIGKILL)
        select.select([], [], [], 0.002)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return []
    for name in filter(str.isdecimal, names):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            text = file.read()
            parent = int(text[text.rindex(b")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    main()
