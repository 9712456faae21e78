"""Cut the power of a file system: a loop-mounted ext4 that is shut down without writing anything more."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING = 2
_SIZE = "48M"
_RELEASE_S = 60.0


class NoPowerCutsError(Exception):
    """This machine cannot cut the power of a file system; the text says what is missing."""


class CuttableDisk:
    """An ext4 in a file. `mount`, write, `cut`, `mount` again: only what had reached the medium is there."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "disk.img"
        self.mounted_at = folder / "disk"
        self.mounted_at.mkdir()
        _run("truncate", "-s", _SIZE, str(self.image))
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self.image))

    def mount(self) -> Path:
        """Mount the disk and return its folder."""
        _run("mount", "-o", "loop", str(self.image), str(self.mounted_at))
        return self.mounted_at

    def cut(self) -> None:
        """Stop all writing at once, journal included."""
        import fcntl

        handle = os.open(self.mounted_at, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING))
        finally:
            os.close(handle)

    def unmount(self) -> None:
        """Unmount; what was cut is then really gone.

        Who made a mount namespace meanwhile has a copy of this mount, which keeps the dead file system alive: it is waited for.
        """
        _run("umount", str(self.mounted_at))
        deadline_s = time.monotonic() + _RELEASE_S
        while _attached(self.image):
            if time.monotonic() > deadline_s:
                raise NoPowerCutsError(f"another process still has {self.image} mounted")
            time.sleep(0.05)


def _attached(image: Path) -> bool:
    listed = subprocess.run(["losetup", "-j", str(image)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return bool(listed.stdout.strip())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode != 0:
        raise NoPowerCutsError(f"{command[0]} failed: {done.stderr.strip()}")


@contextmanager
def cuttable_disk(folder: Path) -> Iterator[CuttableDisk]:
    """Give a disk whose power can be cut. Raises: NoPowerCutsError where the machine does not allow it."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount", "truncate") if shutil.which(name) is None]
    if sys.platform != "linux" or missing:
        raise NoPowerCutsError(f"it needs Linux and {', '.join(missing) or 'ext4'}")
    if os.geteuid() != 0:
        raise NoPowerCutsError("mounting needs root")
    disk = CuttableDisk(folder)
    disk.mount()
    try:
        disk.cut()
    except OSError as error:
        disk.unmount()
        raise NoPowerCutsError(f"the shutdown ioctl was refused: {error}") from error
    disk.unmount()
    try:
        yield disk
    finally:
        if os.path.ismount(disk.mounted_at):
            subprocess.run(["umount", "-l", str(disk.mounted_at)], capture_output=True, check=False)  # noqa: S603, S607
