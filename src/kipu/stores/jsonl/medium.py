"""Files as a store needs them: whole writes, private modes from creation, names that survive a power cut."""

from __future__ import annotations

import errno
import os
import stat

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def write_all(fd: int, data: bytes) -> None:
    """Write every byte of `data`: what a short write left is continued."""
    written = os.write(fd, data)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(data):
        written += os.write(fd, view[written:])


def sync_folder(path: str) -> None:
    """Put the names in a folder on the medium."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: str) -> bool:
    """Make a private folder; return False when it was there."""
    try:
        os.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        return False
    return True


def make_folders(path: str) -> None:
    """Make a private folder and those above it that are missing."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make_folders(parent)
    make_folder(path)


def replace_file(path: str, data: bytes, *, sync: bool = True) -> None:
    """Make `path` hold `data`, or leave it as it was: temporary file, fsync, rename, fsync of the folder (A51)."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise
    if sync:
        sync_folder(os.path.dirname(path))


def remove_file(path: str) -> bool:
    """Remove a file; return False when there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def open_plain(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file. Raises: OSError, also for a pipe or a device in its place, whose bytes might never come, or never end."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, PRIVATE_FILE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return fd


def read_whole(path: str) -> bytes | None:
    """Return the bytes of a file, or None when there is none."""
    try:
        with open(path, "rb", opener=open_plain) as file:
            return file.read()
    except FileNotFoundError:
        return None
