"""Which sandbox a session's commands get."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from kipu.errors import SandboxError
from kipu.runtime.sandbox.bubblewrap import BubblewrapSandbox, SandboxFiles
from kipu.runtime.sandbox.no_sandbox import NoSandbox
from kipu.runtime.sandbox.probe import BubblewrapProbe
from kipu.runtime.sandbox.sandbox import Sandbox

SandboxChoice: TypeAlias = Literal["auto", "required", "off"]


async def open_sandbox(
    root: Path,
    *,
    session_id: str,
    probe: BubblewrapProbe,
    choice: SandboxChoice = "auto",
    writable: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
    has_network: bool = False,
) -> Sandbox:
    """Return the sandbox for a session whose workspace is `root`.

    `probe` is what `probe_bubblewrap` found, once per process. `hidden` are places that commands must not read even where a
    workspace contains them, such as Kipu's own data. `writable` are further places to change (the repository of a worktree).

    Raises: SandboxError, with "required" where bubblewrap does not work, and for a workspace that cannot be shut in.
    """
    root = await asyncio.to_thread(root.resolve)
    if choice == "off":
        return await asyncio.to_thread(NoSandbox.open, root, session_id=session_id, reason="it is switched off")
    if probe.path is None:
        reason = probe.reason or "bubblewrap was not tried"
        if choice == "required":
            raise SandboxError(tool="shell", reason=reason)
        return await asyncio.to_thread(NoSandbox.open, root, session_id=session_id, reason=reason)
    files = SandboxFiles(
        root=root,
        writable=[place.resolve() for place in writable],
        readable=[place.resolve() for place in readable],
        hidden=[place.resolve() for place in hidden],
    )
    return await asyncio.to_thread(
        BubblewrapSandbox.open, probe.path, files, session_id=session_id, has_network=has_network
    )
