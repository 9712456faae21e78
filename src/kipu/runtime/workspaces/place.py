"""`Placing`: where the files of sessions are, which machines reach them, and what this process may therefore work on (B61)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from kipu.errors import HostBoundError, SharedRootError, WorkspaceError
from kipu.ports.clock import Entropy
from kipu.ports.workspace import WorkspaceKind
from kipu.stores.host import SystemEntropy

WorkspacesMode: TypeAlias = Literal["local", "bound", "stored", "shared"]
MANY_MACHINES = frozenset({"postgresql", "valkey"})  # stores that workers of several machines use
HOST_MARK = ".host"
ROOT_MARK = ".kipu-shared"
_ID_BYTES = 13


class Place(NamedTuple):
    """Where files are: one machine's own folder, or a directory that several machines see. The name is for people."""

    id: str
    name: str

    @classmethod
    def from_json(cls, data: Any) -> Place | None:
        """Return the place of a record, None where it names none."""
        if isinstance(data, list) and len(data) == 2 and all(isinstance(part, str) for part in data):
            return cls(*data)
        return None


class Placing:
    """Say where a session's files are to be, and whether a worker here reaches those of a record.

    - `local`: one machine; nothing is asked and nothing noted.
    - `bound`: files stay on the machine where they are, and turns wait for a worker there.
    - `stored`: a session's own directory is kept in the store with every change, and laid out wherever its next turn runs;
      what somebody chose (a directory, a worktree of a repository) is bound.
    - `shared`: what lies below `root` is reached by every machine that has it mounted there; the rest is bound.

    A machine is known by a mark in its own `folder`, made when it is first needed: two processes with one folder are one.
    """

    def __init__(
        self,
        mode: WorkspacesMode,
        *,
        folder: Path,
        root: Path | None = None,
        entropy: Entropy | None = None,
        host_name: str | None = None,
    ) -> None:
        if mode == "shared" and root is None:
            raise SharedRootError(root="(none)", reason="workspaces_root does not say where it is")
        self.mode = mode
        self.folder = folder
        self.root = root if mode == "shared" else None
        self._entropy = entropy or SystemEntropy()
        self._host_name = host_name or socket.gethostname()
        self._host: Place | None = None
        self._root_place: Place | None = None

    @property
    def base(self) -> Path:
        """Return the folder of the sessions' own directories."""
        return self.root or self.folder

    @property
    def host(self) -> Place:
        """Return this machine. Blocking the first time. Raises: WorkspaceError (the folder cannot be written)."""
        if self._host is None:
            marked = read_mark(self.folder / HOST_MARK) or self._new_mark("host", self.folder / HOST_MARK)
            # Names of hosts are not unique: containers of one image, two folders on one machine.
            self._host = Place(marked, f"{self._host_name} [{marked[-4:]}]")
        return self._host

    @property
    def shared(self) -> Place | None:
        """Return the shared directory as a place; None without one. Raises: SharedRootError (it is not there now)."""
        if self.root is None:
            return None
        if self._root_place is None:
            raise SharedRootError(root=str(self.root), reason="nobody has looked yet whether it is the same everywhere")
        if read_mark(self.root / ROOT_MARK) != self._root_place.id:
            raise SharedRootError(root=str(self.root), reason="its mark is not there: it is not mounted here")
        return self._root_place

    def mark_root(self, *, create: bool) -> str | None:
        """Return the mark that the shared directory has, with `create` made where it has none. Blocking. Raises: SharedRootError."""
        if self.root is None or not self.root.is_dir():
            raise SharedRootError(root=str(self.root), reason="there is no such directory")
        marked = read_mark(self.root / ROOT_MARK)
        return self._new_mark("root", self.root / ROOT_MARK) if marked is None and create else marked

    def confirm_root(self, mark: str) -> None:
        """Take the shared directory for the one that every worker of the store sees."""
        self._root_place = Place(mark, f"the shared directory {self.root}")

    def places(self) -> tuple[Place, ...]:
        """Return every place that this process reaches."""
        if self.mode == "local":
            return ()
        shared = self.shared
        return (self.host,) if shared is None else (self.host, shared)

    def place_of(self, kind: WorkspaceKind, path: str) -> Place | None:
        """Return what a workspace made or chosen here is bound to, None where every machine can get at it."""
        if self.mode == "local" or (self.mode == "stored" and kind == "private"):
            return None
        shared = self.shared
        if shared is not None and self.root is not None and _is_below(path, self.root):
            return shared
        return self.host

    def elsewhere(self, record: Mapping[str, Any] | None) -> Place | None:
        """Return the place that a head's record is bound to and that this process does not reach; None where it may go on.

        Raises: SharedRootError (the shared directory is not mounted here now).
        """
        place = Place.from_json((record or {}).get("place"))
        if place is None or self.mode == "local" or place.id in {each.id for each in self.places()}:
            return None
        return place

    def require(self, record: Mapping[str, Any] | None) -> None:
        """Return where the files of a head's record are reached from here. Raises: HostBoundError, SharedRootError."""
        place = self.elsewhere(record)
        if place is not None:
            reason = str((record or {}).get("bound") or f"a {(record or {}).get('kind', 'directory')} of that machine")
            raise HostBoundError(
                root=str((record or {}).get("path")), host=place.name, here=self.host.name, reason=reason
            )

    def _new_mark(self, prefix: str, path: Path) -> str:
        """Make a mark, whole or not at all; whoever is first makes it."""
        mark = f"{prefix}_{self._entropy.random_bytes(_ID_BYTES).hex()}"
        temporary = path.with_name(f"{path.name}.{mark}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary.open("x", encoding="utf-8") as file:
                json.dump({"id": mark, "made_by": self._host_name}, file)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                temporary.rename(path)
        except OSError as error:
            raise WorkspaceError(root=str(path.parent), reason=f"no mark can be made: {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return read_mark(path) or mark


def placing_for(
    store_kind: str,
    *,
    folder: Path,
    mode: WorkspacesMode | Literal["auto"] = "auto",
    root: Path | None = None,
    entropy: Entropy | None = None,
) -> Placing:
    """Return the placing of a store: stored where several machines use it, local elsewhere, unless somebody says otherwise."""
    chosen: WorkspacesMode = ("stored" if store_kind in MANY_MACHINES else "local") if mode == "auto" else mode
    return Placing(chosen, folder=folder, root=root, entropy=entropy)


def read_mark(path: Path) -> str | None:
    """Return the id in a mark, None where there is none that can be read."""
    try:
        marked = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = marked.get("id") if isinstance(marked, dict) else None
    return found if isinstance(found, str) and found else None


def _is_below(path: str, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
