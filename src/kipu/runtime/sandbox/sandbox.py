"""The seam to what commands run in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from kipu.runtime.sandbox.limits import CommandLimits

SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What a sandbox says of itself.

    `is_in_force` tells policies whether commands are shut in at all. `reason` says why they are not. `notes` are for people:
    what is weaker here than it could be. `read_only` are names in the workspace that commands cannot change.
    """

    kind: Literal["bubblewrap", "none"]
    is_in_force: bool
    has_network: bool
    has_dropped_privileges: bool
    reason: str | None = None
    notes: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return it as one line for a person."""
        if not self.is_in_force:
            return f"Commands run without a sandbox ({self.reason}): they can do whatever you can."
        network = "with" if self.has_network else "without"
        shown = ", ".join(self.read_only[:SHOWN_NAMES]) + (" …" if len(self.read_only) > SHOWN_NAMES else "")
        read_only = [f"Read-only for them, since other programs run what it says: {shown}."] if self.read_only else []
        return " ".join([f"Commands run in bubblewrap, {network} network.", *read_only, *self.notes])


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """One command line for the shell. `environment` is all it gets besides PATH, LANG, HOME, TERM and TMPDIR."""

    command: str
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: CommandLimits = field(default_factory=CommandLimits)


class RunningCommand(Protocol):
    """A command that was started.

    Contract:
    - `output` gives what it writes to standard output and standard error, in order, and ends when nobody can write any more.
    - `processes` lists what runs of it, the sandbox's own processes left out.
    - `kill` returns when nothing of it is left, also of what left its group, its session or its parent (B49). It may be
      called twice, and after the end.
    - When this process dies, by whatever signal, the command dies.
    """

    @property
    def output(self) -> asyncio.StreamReader:
        """Return the stream of its output."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Return its exit code once it has ended: 128 + n for what signal n ended."""
        ...

    def processes(self) -> Sequence[int]:
        """Return the ids of its processes, as this process sees them."""
        ...

    def terminate(self) -> None:
        """Ask all of it to end."""
        ...

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""
        ...

    async def kill(self) -> None:
        """End all of it."""
        ...


class Sandbox(Protocol):
    """Start the commands of one session.

    Contract:
    - Nothing of this process's environment reaches a command, but its PATH.
    - Standard input is empty.
    - `writable` are the directories whose growth counts for a command's limits.
    - `aclose` removes what the sandbox keeps on disk; it may be called twice. Commands are ended before, by who started them.

    Raises: SandboxError when a command cannot be started.
    """

    @property
    def report(self) -> SandboxReport:
        """Return what it says of itself."""
        ...

    @property
    def writable(self) -> Sequence[Path]:
        """Return where commands can write."""
        ...

    def clean(self) -> Sequence[str]:
        """Undo what commands left that makes programs outside run something; return that, for the model. Blocking."""
        ...

    async def start(self, request: CommandRequest) -> RunningCommand:
        """Start a command."""
        ...

    async def aclose(self) -> None:
        """Free what it holds."""
        ...
