"""Files of a workspace that make programs outside run something: commands may read them and not change them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Of a repository: what names programs, and what makes git look for such names elsewhere.
GIT_FILES = ("config", "config.worktree", "hooks", "commondir", "info/attributes")
# Of a directory that an editor, a shell or an agent is opened in.
EDITOR_FILES = (".vscode", ".idea", ".envrc", ".claude", ".cursor", ".mcp.json", ".kipu")
COMMON_DIRECTORY = "commondir"  # one that appears in a repository sends git to another one's configuration
MOST_MODULES = 100


class Mount(NamedTuple):
    """One place to be mounted over itself: `is_writable` keeps it from being moved away, with what is read-only in it."""

    place: Path
    is_writable: bool


class ProtectedFiles:
    """What was there when a session's sandbox opened; what its own commands make afterwards is theirs.

    Nothing is protected through a link: who could change the link could change what it leads to, as far as git is concerned.
    """

    def __init__(self, root: Path, repositories: Sequence[Path] = ()) -> None:
        self._root = root
        self._repositories = [
            path for path in (root / ".git", *repositories) if path.is_dir() and not path.is_symlink()
        ]
        self._mounts = list(self._found())
        self._had = {name for name in EDITOR_FILES if os.path.lexists(root / name)}
        self._had_common = {path for path in self._repositories if os.path.lexists(path / COMMON_DIRECTORY)}

    def _found(self) -> Iterator[Mount]:
        pointer = self._root / ".git"
        if pointer.is_file():
            yield Mount(pointer, False)
        for repository in self._repositories:
            yield Mount(repository, True)
            for folder in (repository, *_below(repository / "modules"), *_below(repository / "worktrees")):
                yield from (Mount(folder / name, False) for name in GIT_FILES if _is_there(folder / name))
        yield from (Mount(self._root / name, False) for name in EDITOR_FILES if _is_there(self._root / name))

    @property
    def mounts(self) -> list[Mount]:
        """Return what there is still of it."""
        return [mount for mount in self._mounts if _is_there(mount.place)]

    @property
    def names(self) -> list[str]:
        """Return what is read-only, as a person would name it."""
        shown = [mount.place for mount in self._mounts if not mount.is_writable]
        inside = [str(place.relative_to(self._root)) for place in shown if place.is_relative_to(self._root)]
        outside = [f".git/{place.name}" for place in shown if not place.is_relative_to(self._root)]
        return list(dict.fromkeys([*inside, *outside]))

    def clean(self) -> list[str]:
        """Undo what a command left that no mount can keep out, and return that and what a person is to look at. Blocking."""
        notes: list[str] = []
        for repository in self._repositories:
            common = repository / COMMON_DIRECTORY
            if repository not in self._had_common and os.path.lexists(common):
                with suppress(OSError):
                    common.unlink()
                    notes.append(f"{common.name} of the git repository was removed: it sends git to other settings.")
        for name in EDITOR_FILES:
            if name not in self._had and os.path.lexists(self._root / name):
                self._had.add(name)
                notes.append(
                    f"{name} is new: programs that open this directory may run what it says. Look at it first."
                )
        return notes


def _below(folder: Path) -> list[Path]:
    """Return the repositories of submodules, or the administrative folders of worktrees."""
    try:
        found = sorted(folder.iterdir())[:MOST_MODULES]
    except OSError:
        return []
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _is_there(path: Path) -> bool:
    return not path.is_symlink() and path.exists()
