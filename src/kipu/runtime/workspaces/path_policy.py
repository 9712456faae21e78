"""`PathPolicy`: which paths of a workspace may be read, and which may be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kipu.errors import ConfigurationError
from kipu.runtime.workspaces.twins import folded

PathVerb: TypeAlias = Literal["read", "written"]

# Hooks and settings in there run as programs of whoever calls git next. The second name is what Windows shares show of it.
GIT_INTERNALS = (".git", "git~1")


@dataclass(frozen=True, slots=True)
class PathPolicy:
    """Say for a path relative to the root, its links resolved, whether it may be read or written (A19).

    Patterns: one without `/` matches a name at any depth, one with `/` a path from the root; `*` and `?` stay within a
    name, `**` spans directories. What a pattern matches covers everything below it. "Not" wins over "may", and is compared
    without regard to case or Unicode form, so that no volume's idea of a name opens a way around it.
    """

    readable: tuple[str, ...] = ("**",)
    writable: tuple[str, ...] = ("**",)
    not_readable: tuple[str, ...] = ()
    not_writable: tuple[str, ...] = GIT_INTERNALS

    @classmethod
    def from_settings(cls, settings: Mapping[str, Sequence[str]]) -> PathPolicy:
        """Return the policy of a configuration; what it does not name keeps its default.

        Raises: ConfigurationError.
        """
        known = {field.name for field in fields(cls)}
        for name, patterns in settings.items():
            if name not in known:
                raise ConfigurationError(reason=f"paths have no setting {name!r}; there are {', '.join(sorted(known))}")
            if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
                raise ConfigurationError(reason=f"paths.{name} is a list of patterns")
        values: dict[str, Any] = {name: tuple(patterns) for name, patterns in settings.items()}
        return cls(**values)

    def narrowed(self, *, not_readable: Iterable[str] = (), not_writable: Iterable[str] = ()) -> PathPolicy:
        """Return this policy with more that may not: a session only ever narrows (A19)."""
        return replace(
            self,
            not_readable=(*self.not_readable, *not_readable),
            not_writable=(*self.not_writable, *not_writable),
        )

    def without(self, root: Path, *, places: Iterable[Path]) -> PathPolicy:
        """Return this policy with Kipu's own places closed to both where they lie beneath `root`: its store and its sidecars."""
        closed: list[str] = []
        for place in places:
            try:
                inside = place.resolve().relative_to(root.resolve()).as_posix()
            except ValueError:
                continue
            if inside == ".":
                raise ConfigurationError(reason=f"{root} is Kipu's own store; a session cannot work in it")
            escaped = "/" + _literally(inside)
            closed += [escaped, f"{escaped}-*"]  # SQLite's -wal and -shm
        return self.narrowed(not_readable=closed)

    def refusal(self, path: str, *, verb: PathVerb) -> str | None:
        """Return why `path` may not be read or written, None when it may."""
        parts = _folded_parts(path)
        for pattern in self.not_readable if verb == "read" else (*self.not_readable, *self.not_writable):
            if _covers(pattern, parts):
                return f"the policy for paths excludes {pattern}"
        allowed = self.readable if verb == "read" else self.writable
        if parts and not any(_covers(pattern, parts) for pattern in allowed):
            return f"the policy for paths names only {', '.join(allowed) or 'nothing'}"
        return None


OPEN_POLICY = PathPolicy(not_writable=())


def _folded_parts(path: str) -> list[str]:
    return [folded(part) for part in path.split("/") if part]


def _literally(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


def _covers(pattern: str, parts: Sequence[str]) -> bool:
    """Return True when the pattern matches the path or a directory above it."""
    wanted = _folded_parts(pattern)
    if "/" not in pattern.rstrip("/") and wanted != ["**"]:
        wanted = ["**", *wanted]
    return bool(parts) and _matches(wanted, parts)


def _matches(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    if not wanted:
        return True  # what is left of the path lies below the match
    if wanted[0] == "**":
        return any(_matches(wanted[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _matches(wanted[1:], parts[1:])
