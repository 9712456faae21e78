"""Replace a name in an open directory by a file or link that is whole, or not at all (A51, A52)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator

NEW_FILE_MODE = 0o644  # less the umask
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o777


def replace_file(
    directory: int, name: str, *, data: bytes, mode: int | None, temporary: str, durable: bool = True
) -> None:
    """Put `data` under `name`; the file that stood there gives its mode and owner. Raises: OSError.

    It is on the disk on return, or, without `durable`, once `sync_file_system` was called.
    """
    before = _regular(directory, name)
    wanted = stat.S_IMODE(before.st_mode) & _PERMISSIONS if mode is None and before is not None else mode
    with _cleared(directory, temporary):
        # The kernel takes the umask off a new file's mode; one with a mode to keep is nobody's to read until it has it.
        file = os.open(temporary, _NEW, NEW_FILE_MODE if wanted is None else 0o600, dir_fd=directory)
        try:
            _write_all(file, data)
            if before is not None:
                _keep_owner(file, before)
            if wanted is not None:
                os.fchmod(file, wanted)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    if durable:
        os.fsync(directory)


def sync_file_system(directory: int) -> None:
    """Bring everything written so far on this file system to the disk: for many files much quicker than each by itself."""
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    if syncfs is None or syncfs(directory) != 0:
        os.sync()


def replace_link(directory: int, name: str, *, target: str, temporary: str) -> None:
    """Put a link that says `target` under `name`, durable on return. Raises: OSError."""
    with _cleared(directory, temporary):
        os.symlink(target, temporary, dir_fd=directory)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


@contextlib.contextmanager
def _cleared(directory: int, temporary: str) -> Iterator[None]:
    """Leave no temporary file behind when the block fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _regular(directory: int, name: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _keep_owner(file: int, before: os.stat_result) -> None:
    now = os.fstat(file)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only root gives files away; the content is what was asked for
            os.fchown(file, before.st_uid, before.st_gid)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
