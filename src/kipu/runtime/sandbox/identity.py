"""Whose rights a session's commands have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kipu.runtime.sandbox.kernel_mounts import OwnedMount, open_mount_namespace
from kipu.runtime.sandbox.scratch import Scratch

# Above what systemd and container runtimes hand out, below what 32 bits with a sign can say.
FIRST_SESSION_ID, SESSION_ID_COUNT = 1_900_000_000, 200_000_000


@dataclass(frozen=True, slots=True)
class CommandIdentity:
    """Who a session's commands are.

    `user_id` is None when they are who this process is. `namespace` is a descriptor of the mount namespace in which
    `shown_at` says where the writable directories stand with the session's user as their owner.
    """

    user_id: int | None = None
    namespace: int | None = None
    shown_at: Mapping[Path, Path] | None = None
    note: str | None = None

    def place_of(self, directory: Path) -> Path:
        """Return where a writable directory is to be taken from."""
        return directory if self.shown_at is None else self.shown_at[directory]

    def close(self) -> None:
        """Let go of the namespace."""
        if self.namespace is not None:
            os.close(self.namespace)


def open_identity(
    session_id: str, *, writable: Sequence[Path], scratch: Scratch, is_in_place: bool = False
) -> CommandIdentity:
    """Give a session's commands a user of their own when this process is root's, else leave them this process's.

    The session's user may write what the writable directories' owners may, and what it makes there is theirs on disk: the
    kernel exchanges the ids on the way (an id-mapped mount), nothing is chowned. `is_in_place` lays each mount over its own
    directory, for commands that see the whole machine; else they stand in the scratch directory, which everybody can reach.
    """
    if os.geteuid() != 0:
        return CommandIdentity()
    user_id = session_user_id(session_id)
    # The session's user has to pass through it, and nobody can list it.
    scratch.path.chmod(0o711)
    mounts = []
    for number, directory in enumerate(writable):
        owner = directory.stat()
        target = directory if is_in_place else scratch.directory(f"mount-{number}")
        mounts.append(OwnedMount(source=directory, target=target, uid=owner.st_uid, gid=owner.st_gid, shown_id=user_id))
    try:
        _check_passable(scratch.path)
        namespace = open_mount_namespace(mounts)
    except OSError as error:
        return CommandIdentity(note=f"They run as root, because owners cannot be mapped here ({error}).")
    shown_at = {mount.source: mount.target for mount in mounts}
    return CommandIdentity(user_id=user_id, namespace=namespace, shown_at=shown_at)


def session_user_id(session_id: str) -> int:
    """Return the user id of a session: always the same, and nobody else's on any sane machine."""
    digest = hashlib.sha256(session_id.encode()).digest()
    return FIRST_SESSION_ID + int.from_bytes(digest[:8], "big") % SESSION_ID_COUNT


def _check_passable(place: Path) -> None:
    for directory in [place, *place.parents]:
        if not directory.stat().st_mode & 0o001:
            raise PermissionError(f"{directory} is closed to others")
