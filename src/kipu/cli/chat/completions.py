"""What Tab offers: commands, files of the session's directory behind `@`, and sessions behind /switch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kipu.errors import KipuError

OFFERED = 40
MAX_FILES = 20_000
FRESH_S = 5.0
_LEFT_OUT = frozenset({".git", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
Offer = tuple[str, int, str]  # the word, how many characters before the cursor it replaces, what it is


class Completions:
    """Give offers for the text before the cursor. `root` is the session's directory, `sessions` those that were listed."""

    def __init__(
        self,
        commands: Callable[[], Iterable[tuple[str, str]]],
        *,
        root: Callable[[], Path | None],
        sessions: Callable[[], Iterable[tuple[str, str]]],
    ) -> None:
        self._commands = commands
        self._root = root
        self._sessions = sessions
        self._files: list[str] = []
        self._found: tuple[Path | None, float] = (None, 0.0)

    def __call__(self, text: str) -> list[Offer]:
        """Return the offers."""
        word = text.rpartition(" ")[2].rpartition("\n")[2]
        if word.startswith("@"):
            return [(f"@{name}", len(word), "") for name in self._matching(word[1:])]
        if text.startswith("/switch "):
            given = text.removeprefix("/switch ")
            return [
                (id_, len(given), title)
                for id_, title in self._sessions()
                if given.casefold() in f"{id_} {title}".casefold()
            ]
        if text.startswith("/") and " " not in text:
            return [
                (f"/{name}", len(text), meaning) for name, meaning in self._commands() if f"/{name}".startswith(text)
            ]
        return []

    def _matching(self, given: str) -> list[str]:
        """Return files whose path begins with what is given, then those whose name does, then those that contain it."""
        wanted = given.casefold()
        ranked: list[tuple[int, str]] = []
        for name in self._listed():
            folded = name.casefold()
            if folded.startswith(wanted):
                ranked.append((0, name))
            elif folded.rpartition("/")[2].startswith(wanted):
                ranked.append((1, name))
            elif wanted in folded:
                ranked.append((2, name))
        return [name for _, name in sorted(ranked)[:OFFERED]]

    def _listed(self) -> list[str]:
        root, now = self._root(), time.monotonic()
        if root is None:
            return []
        if self._found[0] != root or now - self._found[1] > FRESH_S:
            self._files = _git_files(root) or list(_walked(root))
            self._found = (root, now)
        return self._files


def _git_files(root: Path) -> list[str]:
    """Return what git knows or would know of; empty where this is no repository."""
    from kipu.runtime.workspaces.git import GitProgram

    try:
        # Asked so that nothing of the repository's own settings runs.
        done = GitProgram().run("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    except KipuError:
        return []
    names = os.fsdecode(done.stdout).split("\0") if done.status == 0 else []
    return [name for name in names[:MAX_FILES] if name]


def _walked(root: Path) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            yield os.path.relpath(Path(folder, name), root)
            count += 1
            if count == MAX_FILES:
                return
