"""Decisions are a person's: a command that an agent runs makes none (C26)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kipu.errors import NotAPersonError
from kipu.runtime.sandbox.no_sandbox import MARKER_NAME
from kipu.runtime.sandbox.scratch import MARK_NAME

_PROC = Path("/proc")
_MARKS = tuple(f"{name}=".encode() for name in (MARKER_NAME, MARK_NAME))
_DEEPEST = 64


def require_a_person(principal: str) -> None:
    """Return where no process above this one was started by an agent's tool. Raises: NotAPersonError.

    The mark is in the environment that a process began with: what a command unsets for its own children stays in its own.
    Where commands are shut in, they do not reach the store in the first place.
    """
    for environment in _environments():
        if any(entry.startswith(_MARKS) for entry in environment.split(b"\0")):
            raise NotAPersonError(principal=principal, reason="this command was started by an agent")


def _environments() -> Iterator[bytes]:
    """Yield the environments that this process and those above it began with, as far as they can be read."""
    yield b"\0".join(name + b"=" + value for name, value in os.environb.items())
    process = os.getpid()
    for _ in range(_DEEPEST):
        try:
            yield (_PROC / str(process) / "environ").read_bytes()
            # The name in the second field may hold anything, so what follows its last bracket is read.
            process = int((_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        if process <= 1:
            return
