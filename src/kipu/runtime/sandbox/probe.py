"""Whether bubblewrap works on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BubblewrapProbe:
    """What trying bubblewrap found: its path, or the reason why it cannot be used, for people."""

    path: str | None
    reason: str | None = None


async def probe_bubblewrap(program: str = "bwrap", *, wait_s: float = 10.0) -> BubblewrapProbe:
    """Try all that the sandbox needs from bubblewrap: a kernel or a container may forbid namespaces."""
    path = shutil.which(program)
    if path is None:
        return BubblewrapProbe(None, "bubblewrap (bwrap) is not installed")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return BubblewrapProbe(None, "this kernel cannot follow processes by descriptors (pidfd)")
    arguments = [
        *("--unshare-all", "--disable-userns", "--unshare-user", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/sh", "-c", "exit 0"),
    ]
    process = await asyncio.create_subprocess_exec(
        path,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin"},
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), wait_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        return BubblewrapProbe(None, f"bubblewrap did not answer within {wait_s:g} s")
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip() or f"exit code {process.returncode}"
        return BubblewrapProbe(None, f"bubblewrap cannot make namespaces here: {said}")
    return BubblewrapProbe(path)
