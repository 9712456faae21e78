"""Where a path lies: which kind of file system, and whether its locks can be trusted between machines."""

from __future__ import annotations

import os
import re

NETWORK_KINDS = frozenset(
    {
        "9p", "afs", "afp", "afpfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.goofys", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs",
        "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs", "vboxsf", "drvfs",
    }
)  # fmt: skip
_MOUNTS = "/proc/self/mounts"
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system_kind(path: str) -> str:
    """Return the kind of the file system that `path` is on or would be on, or "" where that cannot be known."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read().splitlines()
    except OSError:
        return ""
    wanted = os.path.realpath(path)
    kind, length = "", -1
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1])
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= length:  # the later of two mounts on one point hides the earlier
            kind, length = fields[2], len(point)
    return kind


def is_network(kind: str) -> bool:
    """Return whether a file system of this kind is shared over a network."""
    return kind in NETWORK_KINDS
