"""Let the n-th call to the operating system fail, below one folder only: write, sync, cut, rename, open, make."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

HANDLE_CALLS = ("write", "pwrite", "writev", "fsync", "fdatasync", "ftruncate")
PATH_CALLS = ("open", "mkdir", "replace", "rename", "truncate", "link")


@dataclass
class CallFaults:
    """Counts the calls that change files below `root`, and breaks the ones it was told to.

    `nth` counts from one; 0 breaks none and only counts. `lasting` breaks all that follow too, as a full disk does.
    `short` lets a write put down half and say so, which is no error.
    """

    root: Path
    nth: int = 0
    code: int = errno.EIO
    lasting: bool = False
    short: bool = False
    seen: int = 0
    broken: list[str] = field(default_factory=list)

    def _is_below(self, target: Any) -> bool:
        try:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fsdecode(target)
        except (OSError, TypeError):
            return False
        return path.startswith(str(self.root))

    def breaks(self, name: str, target: Any) -> bool:
        """Count a call and say whether it is to fail."""
        if not self._is_below(target):
            return False
        self.seen += 1
        chosen = self.nth > 0 and (self.seen >= self.nth if self.lasting else self.seen == self.nth)
        if chosen:
            self.broken.append(name)
        return chosen

    def error(self, target: Any) -> OSError:
        """Return the error of a broken call."""
        return OSError(self.code, os.strerror(self.code), None if isinstance(target, int) else str(target))


def _wrap(faults: CallFaults, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(target: Any, *arguments: Any, **options: Any) -> Any:
        reads = name == "open" and not (arguments and arguments[0] & (os.O_CREAT | os.O_TRUNC))
        if reads or not faults.breaks(name, target):
            return real(target, *arguments, **options)
        if faults.short and name in {"write", "pwrite"}:
            data = bytes(arguments[0])
            return real(target, data[: max(1, len(data) // 2)], *arguments[1:], **options)
        if faults.short:
            return real(target, *arguments, **options)
        if name == "write" and faults.code in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            real(
                target, bytes(arguments[0])[: len(arguments[0]) // 3]
            )  # a full disk takes what still fits, then says so
        raise faults.error(target)

    return call


@contextmanager
def failing_calls(faults: CallFaults) -> Iterator[CallFaults]:
    """Let calls fail as `faults` says, for as long as the block runs, in this process and below its root only."""
    names = [name for name in (*HANDLE_CALLS, *PATH_CALLS) if hasattr(os, name)]
    patches = [patch.object(os, name, _wrap(faults, name, getattr(os, name))) for name in names]
    for each in patches:
        each.start()
    try:
        yield faults
    finally:
        for each in reversed(patches):
            each.stop()
