"""A session's private place for temporary files, removed with the session, and after a crash by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path

from kipu.runtime.sandbox.process_tree import marked_processes, send_signal

PREFIX = "kipu-shell-"
LOCK_NAME = "lock"
MARK_NAME = "KIPU_SCRATCH"


class Scratch:
    """Hold a directory that lives as long as this object, and no longer than the process.

    A lock tells the directories in use from those that a crash left behind; making one removes the latter, and ends what
    still runs of their sessions.
    """

    def __init__(self, parent: Path | None = None) -> None:
        """Make it below `parent`, by default where the system keeps temporary files."""
        place = Path(tempfile.gettempdir()) if parent is None else parent
        _remove_abandoned(place)
        self._lock: int | None
        self.path, self._lock = _locked_directory(place)

    @property
    def mark(self) -> dict[str, str]:
        """Return the variable by which a process outside of the sandbox is known to belong to this session."""
        return {MARK_NAME: str(self.path)}

    def directory(self, name: str, *, owner: int | None = None) -> Path:
        """Return a directory in it, made for `owner` when it is not there."""
        place = self.path / name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if owner is not None:
            os.chown(place, owner, owner)
        return place

    @property
    def is_closed(self) -> bool:
        """Tell whether it was removed."""
        return self._lock is None

    def close(self) -> None:
        """Remove it with all it contains."""
        if self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None


def _locked_directory(parent: Path) -> tuple[Path, int]:
    """Make a directory and lock it, anew where another process cleared away just then and took it for abandoned."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (path / LOCK_NAME).stat().st_ino == os.fstat(lock).st_ino:
                    return path, lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for place in parent.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            # Only our own: another user's directory is not ours to judge.
            if place.lstat().st_uid != os.geteuid() or place.is_symlink():
                continue
            descriptor = os.open(place / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A bubblewrap whose monitor was killed in the middle of its start waits for ever.
                mark = f"{MARK_NAME}={place.resolve()}\0"
                send_signal(marked_processes(os.fsencode(mark)), signal.SIGKILL)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(descriptor)
