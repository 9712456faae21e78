"""Locks between processes: `flock` on a file that is only ever locked, never replaced, with a mutex for this process."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from types import TracebackType

from kipu.errors import StoreUnavailableError

_PAUSE_S = 0.002
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO, errno.EBADF)


def locks_fail(folder: str) -> str:
    """Return why locks in a folder cannot be relied on even between two handles of this machine, or "" where they hold."""
    path = os.path.join(folder, f".locks-{os.getpid()}-{os.urandom(4).hex()}")
    handles: list[int] = []
    try:
        handles += [os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for _ in range(2)]
        fcntl.flock(handles[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(handles[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        return "a lock that one process holds is given to a second one too"
    except OSError as error:
        if error.errno in _NO_LOCKS and handles:
            return f"it has no locks ({os.strerror(error.errno)})"
        raise
    finally:
        for handle in handles:
            os.close(handle)
        if handles:
            os.unlink(path)


class FileLock:
    """Hold off other processes, and other threads of this one, while the holder works.

    `flock` belongs to the open file and not to the process, so closing another descriptor on the file does not drop it, and
    two stores of one process hold each other off as two processes do.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._mutex = threading.Lock()
        self._holder = 0

    def acquire(self, *, wait_s: float, shared: bool = False) -> None:
        """Take the lock, waiting up to `wait_s`.

        Raises:
            BlockingIOError: `wait_s` is 0 and somebody holds it.
            StoreUnavailableError: it was held all the time.
        """
        if not self._mutex.acquire(timeout=wait_s if wait_s > 0 else -1, blocking=wait_s > 0):
            self._refuse(wait_s)
        try:
            self._lock(wait_s, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except BaseException:
            self._mutex.release()
            raise
        self._holder = threading.get_ident()

    def _lock(self, wait_s: float, kind: int) -> None:
        if self._fd < 0:
            self._fd = self._open()
        deadline = time.monotonic() + wait_s if wait_s > 0 else 0.0
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    self._refuse(wait_s)
                time.sleep(_PAUSE_S)
            else:
                return

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # who may only read holds off those who write

    def _refuse(self, wait_s: float) -> None:
        if wait_s <= 0:
            raise BlockingIOError(errno.EWOULDBLOCK, "somebody holds the lock", self.path)
        reason = f"another process holds its lock for more than {wait_s:g} s"
        raise StoreUnavailableError(store=self.path, reason=reason)

    def release(self) -> None:
        """Give the lock back."""
        self._holder = 0
        try:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._mutex.release()

    @property
    def is_mine(self) -> bool:
        """Return True in the thread that holds the lock."""
        return self._holder == threading.get_ident()

    @property
    def unlinked(self) -> bool:
        """Return True when the file has no name any more: what it guards was erased."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        """Close the file. The holder closes it only while nobody of this process holds it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close_idle(self) -> bool:
        """Close the file unless somebody holds the lock; return whether that was so."""
        if not self._mutex.acquire(blocking=False):
            return False
        self.close()
        self._mutex.release()
        return True

    def held(self, *, wait_s: float, shared: bool = False) -> _Held:
        """Return a context that holds the lock."""
        return _Held(self, wait_s=wait_s, shared=shared)


class _Held:
    __slots__ = ("_lock", "_shared", "_wait_s")

    def __init__(self, lock: FileLock, *, wait_s: float, shared: bool) -> None:
        self._lock = lock
        self._wait_s = wait_s
        self._shared = shared

    def __enter__(self) -> None:
        self._lock.acquire(wait_s=self._wait_s, shared=self._shared)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
