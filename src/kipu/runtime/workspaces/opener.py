"""Open a path beneath a directory so that no link, whenever it was put there, leads out of it."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

OPENAT2 = 437  # the same number on every architecture named here
_ARCHITECTURES = frozenset({"x86_64", "amd64", "aarch64", "arm64", "riscv64", "ppc64le", "s390x"})
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class BeneathOpener(Protocol):
    """Open a path whose links were all resolved.

    Contract:
    - `parts` name a path below the directory `root`; none is "", "." or "..". No parts are the root itself.
    - A link anywhere in it, the last part included, is an OSError (ELOOP or ENOTDIR), also when it was put there a moment ago.
    """

    def open(self, root: int, parts: Sequence[str], *, flags: int) -> int:
        """Return a descriptor. Raises: OSError."""
        ...


class KernelOpener:
    """Let the kernel resolve the whole path in one step (`openat2`, Linux 5.6)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def open(self, root: int, parts: Sequence[str], *, flags: int) -> int:
        """Return a descriptor. Raises: OSError."""
        path = os.fsencode("/".join(parts) or ".")
        resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
        how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
        while True:
            descriptor: int = self._libc.syscall(
                OPENAT2, ctypes.c_int(root), ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(24)
            )
            if descriptor >= 0:
                return descriptor
            code = ctypes.get_errno()
            if code not in {errno.EINTR, errno.EAGAIN}:
                raise OSError(code, os.strerror(code), "/".join(parts))


class WalkingOpener:
    """Open one directory after another, following no link: for systems whose kernel does not resolve beneath."""

    def open(self, root: int, parts: Sequence[str], *, flags: int) -> int:
        """Return a descriptor. Raises: OSError."""
        if not parts:
            return os.open(".", flags | os.O_CLOEXEC, dir_fd=root)
        held = os.dup(root)
        try:
            for part in parts[:-1]:
                deeper = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=held)
                os.close(held)
                held = deeper
            return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
        finally:
            os.close(held)


def best_opener() -> BeneathOpener:
    """Return the kernel's way where this system has it, else the walk. A sandbox may refuse the call: that is seen too."""
    if not sys.platform.startswith("linux") or platform.machine().lower() not in _ARCHITECTURES:
        return WalkingOpener()
    kernel = KernelOpener()
    try:
        with held(os.open("/", DIRECTORY)) as root:
            os.close(kernel.open(root, (), flags=DIRECTORY))
    except OSError:
        return WalkingOpener()
    return kernel


@contextmanager
def held(descriptor: int) -> Iterator[int]:
    """Close the descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
