"""A mount namespace in which directories carry other owners than on disk."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

# These numbers are the same on every architecture.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 0x2, 0x4, 0x00100000


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class OwnedMount:
    """A directory shown at another place, where what `uid` and `gid` own on disk belongs to `shown_id`, both ways."""

    source: Path
    target: Path
    uid: int
    gid: int
    shown_id: int


def open_mount_namespace(mounts: Sequence[OwnedMount]) -> int:
    """Return a descriptor of a new mount namespace that has these mounts; nothing is left when it is closed.

    A thread of its own enters the namespace and ends there: this process never leaves the one it is in.
    Raises: OSError, where the kernel, the rights or the file system do not allow it.
    """
    outcome: Future[int] = Future()

    def enter() -> None:
        try:
            outcome.set_result(_build_namespace(mounts))
        except BaseException as error:  # noqa: BLE001
            outcome.set_exception(error)

    thread = threading.Thread(target=enter, name="kipu-mounts")
    thread.start()
    thread.join()
    return outcome.result()


def _build_namespace(mounts: Sequence[OwnedMount]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc.unshare, CLONE_NEWNS)
    _call(libc.mount, b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    for mount in mounts:
        _attach(libc, mount)
    return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def _attach(libc: ctypes.CDLL, mount: OwnedMount) -> None:
    recursive = AT_RECURSIVE
    tree = _system_call(
        libc, SYS_OPEN_TREE, AT_FDCWD, os.fsencode(mount.source), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive
    )
    try:
        owners = _open_owner_map(mount)
        try:
            attributes = _MountAttributes(
                attr_set=MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, userns_fd=owners
            )
            size = ctypes.sizeof(attributes)
            flags = AT_EMPTY_PATH | recursive
            _system_call(libc, SYS_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(attributes), ctypes.c_size_t(size))
        finally:
            os.close(owners)
        _open_the_way(libc, mount.target)
        _system_call(
            libc, SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(mount.target), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH)
        )
    finally:
        os.close(tree)


def _open_the_way(libc: ctypes.CDLL, target: Path) -> None:
    """Cover the first directory on the way that is closed to others by an empty one, in this namespace only."""
    for directory in reversed(target.parents):
        if not directory.stat().st_mode & 0o001:
            _call(libc.mount, b"none", os.fsencode(directory), b"tmpfs", 0, b"mode=0755,size=1m")
            target.mkdir(parents=True)
            return


def _open_owner_map(mount: OwnedMount) -> int:
    """Return a user namespace whose maps say who owns what; a process must be born in it, and may end at once."""
    ours = Path("/proc/self/ns/user").readlink()
    with subprocess.Popen(
        ["unshare", "--user", "cat"],  # noqa: S607
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdin is not None  # noqa: S101
        assert holder.stdout is not None  # noqa: S101
        # The echo tells that the process is where it should be.
        holder.stdin.write(b".")
        holder.stdin.flush()
        holder.stdout.read(1)
        place = Path("/proc") / str(holder.pid)
        if (place / "ns/user").readlink() == ours:
            raise OSError("a user namespace cannot be made here")
        (place / "uid_map").write_text(f"{mount.uid} {mount.shown_id} 1\n")
        (place / "gid_map").write_text(f"{mount.gid} {mount.shown_id} 1\n")
        return os.open(place / "ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _system_call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    return _call(libc.syscall, number, *arguments)


def _call(function: Callable[..., int], *arguments: object) -> int:
    result = function(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
