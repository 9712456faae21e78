"""Where a path lies: which kind of file system, how far its locks reach, and whether files there can grow.

What a mount is comes from the mount table. What its locks do is asked of it where that can be asked: two handles of one machine.
Whether another machine is held off too cannot be tried from here, and is known by the kind and its options.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from dataclasses import dataclass
from typing import Literal

NETWORK_KINDS = frozenset(
    {
        "9p", "acfs", "afs", "afp", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "fakeowner", "fuse.blobfuse2",
        "fuse.ceph", "fuse.davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.grpcfuse", "fuse.juicefs",
        "fuse.mfs", "fuse.moosefs", "fuse.mountpoint-s3", "fuse.osxfs", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs", "fuse.smbnetfs",
        "fuse.sshfs", "fuse.vmhgfs-fuse", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs",
        "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
    }
)  # fmt: skip
OBJECT_KINDS = frozenset(
    {
        "davfs", "fuse.blobfuse2", "fuse.davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.goofys", "fuse.mountpoint-s3", "fuse.rclone",
        "fuse.s3fs",
    }
)  # fmt: skip
"""Kinds that keep whole objects: a line added to a file is the file sent again, and what is synced may not be there yet."""
_BETWEEN_MACHINES = frozenset(
    {
        "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.mfs", "fuse.moosefs", "gfs2", "glusterfs",
        "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "wekafs",
    }
)  # fmt: skip
_KEPT_HERE = ("nolock", "local_lock=all", "local_lock=flock", "nobrl", "localflock")
_OBJECTS_BY_SOURCE = ("mountpoint-s3", "blobfuse2")
_MOUNTS = "/proc/self/mounts"
_OCTAL = re.compile(r"\\([0-7]{3})")
_SYNCS = 15
LockReach = Literal["machines", "machine"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of the mount table."""

    source: str
    point: str
    kind: str
    options: frozenset[str] = frozenset()

    @property
    def lock_reach(self) -> LockReach:
        """Return whether a lock taken there holds off other machines, as far as the kind and its options tell."""
        if self.kind not in _BETWEEN_MACHINES or self.options & set(_KEPT_HERE):
            return "machine"
        return "machines"


def mount_of(path: str) -> Mount | None:
    """Return the mount that `path` is on or would be on, or None where that cannot be known."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read().splitlines()
    except OSError:
        return None
    wanted = os.path.realpath(path)
    found: Mount | None = None
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        source, point = (_OCTAL.sub(lambda match: chr(int(match[1], 8)), text) for text in fields[:2])
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # The later of two mounts on one point hides the earlier.
        if inside and (found is None or len(point) >= len(found.point)):
            found = Mount(source, point, _named(fields[2], source), frozenset(",".join(fields[3:4]).split(",")))
    return found


def _named(kind: str, source: str) -> str:
    """Return a kind by its own name where the table only says `fuse`."""
    return f"fuse.{source}" if kind == "fuse" and source in _OBJECTS_BY_SOURCE else kind


def file_system_kind(path: str) -> str:
    """Return the kind of the file system that `path` is on or would be on, or "" where that cannot be known."""
    found = mount_of(path)
    return "" if found is None else found.kind


def is_network(kind: str) -> bool:
    """Return whether a file system of this kind is shared over a network, or with the host of a virtual machine."""
    return kind in NETWORK_KINDS


def is_untold(kind: str) -> bool:
    """Return whether a file system of this kind may be anything: what it can do is to be tried."""
    return kind == "fuse" or kind.startswith("fuse.") or is_network(kind)


def sync_ms(folder: str) -> float:
    """Return how long it takes here until a line is on the medium: the median of some, in a file that is gone afterwards."""
    path = os.path.join(folder, f".syncs-{os.getpid()}-{os.urandom(4).hex()}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    laps = []
    try:
        for _ in range(_SYNCS):
            began_s = time.perf_counter()
            os.write(handle, b"x" * 600)
            os.fsync(handle)
            laps.append(time.perf_counter() - began_s)
    finally:
        os.close(handle)
        os.unlink(path)
    return statistics.median(laps) * 1_000
