"""The mark beside a store that is being encrypted or decrypted: how far that is, and a lock on whoever does it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Any, Literal

import orjson

from kipu.errors import StoreConvertingError

Step = Literal["copy", "exchange", "clear"]
_SIZE = 1024  # written in place and at once: a kill leaves the old words or the new ones
_COMMANDS = {True: ("encrypted", "encrypt"), False: ("decrypted", "decrypt")}
_WAIT_S = 2.0  # somebody who opens the store holds the mark for a moment


def mark_path(path: Path) -> Path:
    """Return where the mark of the store at `path` is."""
    return path.with_name(f"{path.name}.converting")


def refuse_while_converting(path: Path, *, store: str) -> None:
    """Raise StoreConvertingError where the store is being converted now, or was left with its files half exchanged.

    A conversion that was cut while it copied left the store as it was: it may be used, and the copy goes on later.
    """
    if not path.name:
        return
    try:
        descriptor = os.open(mark_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        said = _read(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _converting(said, store=store, reason="another process does it now") from error
        if said.get("step") == "exchange":  # a mark that says nothing was never written whole: nothing was begun
            raise _converting(said, store=store, reason="it was stopped while the files were exchanged")
    finally:
        os.close(descriptor)


def _converting(said: dict[str, Any], *, store: str, reason: str) -> StoreConvertingError:
    verb, command = _COMMANDS[bool(said.get("encrypt", True))]
    return StoreConvertingError(store=store, verb=verb, command=command, reason=reason)


class ConversionMark:
    """Hold the mark for as long as this process converts the store."""

    def __init__(self, path: Path, *, store: str) -> None:
        self.path = mark_path(path)
        while True:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._lock(store)
            except BaseException:
                os.close(self._descriptor)
                raise
            if os.fstat(self._descriptor).st_nlink:
                break
            os.close(self._descriptor)  # taken away while we waited: nobody would see what we say on it
        self.said = _read(self._descriptor)

    def _lock(self, store: str) -> None:
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline_s:
                    said = _read(self._descriptor)
                    raise _converting(said, store=store, reason="another process does it now") from error
                time.sleep(0.02)
            else:
                return

    def say(self, **words: Any) -> None:
        """Change what the mark says, durably."""
        self.said = {**self.said, **words}
        if os.pwrite(self._descriptor, orjson.dumps(self.said).ljust(_SIZE), 0) != _SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        os.fsync(self._descriptor)
        sync_folder(self.path.parent)

    def remove(self) -> None:
        """Take the mark away."""
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Let go of the mark, which stays."""
        os.close(self._descriptor)


def sync_folder(folder: Path) -> None:
    """Make what was renamed, made and removed in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> dict[str, Any]:
    try:
        found: dict[str, Any] = orjson.loads(os.pread(descriptor, _SIZE, 0))
    except orjson.JSONDecodeError:
        return {}
    return found
