"""Where a path leads beneath a root: every link and `..` of it resolved, step by step, without leaving the root."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kipu.errors import PathOutsideError, WorkspaceError
from kipu.runtime.workspaces.opener import DIRECTORY, BeneathOpener, held
from kipu.runtime.workspaces.twins import Twin, unicode_twin

LINKS_FOLLOWED = 40  # as many as Linux follows


@dataclass(slots=True)
class Resolved:
    """The parts of a path without a link among them, what is there (None: nothing), and the twin that was taken for a part."""

    parts: tuple[str, ...]
    status: os.stat_result | None
    twin: Twin | None = None

    @property
    def path(self) -> str:
        """Return the path relative to the root."""
        return "/".join(self.parts)


class _Walk:
    """One resolution under way: the parts that stand, and those to come."""

    def __init__(self, parts: Sequence[str]) -> None:
        self.done: list[str] = []
        self.pending = deque(parts)
        self.status: os.stat_result | None = None
        self.links = 0
        self.twin: Twin | None = None


class PathResolver:
    """Resolve paths beneath `root`, given as people write it and as it really is.

    What it finds is true for the moment only. Whoever opens the result does it by a `BeneathOpener`, which refuses links:
    so a link put in meanwhile is noticed, and never followed.
    """

    def __init__(self, root: Path, *, opener: BeneathOpener) -> None:
        self.root = Path(os.path.realpath(root))
        self._names = {tuple(_split(str(root.absolute()))), tuple(_split(str(self.root)))}
        self._opener = opener

    def resolve(self, root: int, path: str, *, follow: bool = True) -> Resolved:
        """Return where `path` leads; with `follow=False` a link at its end stays itself.

        Raises: PathOutsideError, WorkspaceError (a file in the way, too many links), OSError.
        """
        walk = _Walk(self._checked(path))
        while walk.pending:
            part = walk.pending.popleft()
            if part == "..":
                if not walk.done:
                    raise PathOutsideError(root=str(self.root), path=path, reason="'..' leads above its root")
                walk.done.pop()
                walk.status = None
                continue
            self._step(root, walk, part=part, path=path, follow=follow)
        if walk.status is None and walk.done:  # a ".." came last
            walk.status = _status(root, walk.done)
        return Resolved(tuple(walk.done), walk.status, walk.twin)

    def _step(self, root: int, walk: _Walk, *, part: str, path: str, follow: bool) -> None:
        status = self._look(root, [*walk.done, part], path=path)
        if status is None:
            other = self._twin(root, walk.done, part=part)
            if other is not None:
                walk.twin = Twin("/".join([*walk.done, other]), "another Unicode form of the same letters")
                walk.pending.appendleft(other)
                return
        elif stat.S_ISLNK(status.st_mode) and (walk.pending or follow):
            self._follow(root, walk, part=part, path=path)
            return
        walk.done.append(part)
        walk.status = status

    def _follow(self, root: int, walk: _Walk, *, part: str, path: str) -> None:
        walk.links += 1
        if walk.links > LINKS_FOLLOWED:
            raise WorkspaceError(root=str(self.root), reason=f"{path!r} leads through too many links")
        target = _target(root, [*walk.done, part])
        parts = _split(target)
        if target.startswith("/"):
            beneath = self._beneath(parts)
            if beneath is None:
                raise PathOutsideError(root=str(self.root), path=path, reason="a link on the way leads outside")
            walk.done, parts = [], beneath
        walk.pending.extendleft(reversed(parts))
        walk.status = None

    def _checked(self, path: str) -> list[str]:
        """Return the parts of a path as it was given, relative to the root."""
        if "\0" in path:
            raise PathOutsideError(root=str(self.root), path=path, reason="it holds a NUL character")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise PathOutsideError(root=str(self.root), path=path, reason="it holds half a character") from None
        parts = _split(path)
        if not path.startswith("/"):
            return parts
        beneath = self._beneath(parts)
        if beneath is None:
            raise PathOutsideError(root=str(self.root), path=path, reason="it is an absolute path to another place")
        return beneath

    def _beneath(self, parts: list[str]) -> list[str] | None:
        """Return what follows the root's own name in an absolute path, None where it does not begin with it."""
        for name in self._names:
            if tuple(parts[: len(name)]) == name:
                return parts[len(name) :]
        return None

    def _look(self, root: int, parts: Sequence[str], *, path: str) -> os.stat_result | None:
        try:
            return _status(root, parts)
        except NotADirectoryError:
            above = "/".join(parts[:-1])
            raise WorkspaceError(root=str(self.root), reason=f"{above!r} in {path!r} is not a directory") from None

    def _twin(self, root: int, above: Sequence[str], *, part: str) -> str | None:
        try:
            with held(self._opener.open(root, above, flags=DIRECTORY)) as directory:
                return unicode_twin(part, directory)
        except OSError:
            return None


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _target(root: int, parts: Sequence[str]) -> str:
    path = "/".join(parts)
    try:
        return os.readlink(path, dir_fd=root)
    except OSError as error:
        if error.errno == errno.EINVAL:  # a moment ago it was a link
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from error
        raise


def _status(root: int, parts: Sequence[str]) -> os.stat_result | None:
    try:
        return os.stat("/".join(parts), dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # swapped for a link while this looked: found out when it is opened
            return None
        raise
