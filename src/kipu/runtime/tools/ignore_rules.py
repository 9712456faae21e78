"""What `.gitignore` files leave out, as git reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_PATTERNS = 2_000
MAX_PATTERN_CHARACTERS = 500
MAX_SPANS = 3  # of `**` in a glob: each may be tried at every depth


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One pattern. `is_exception` takes back what an earlier one left out."""

    matcher: re.Pattern[str]
    is_exception: bool
    only_directories: bool


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of a directory and those above it; the last one that matches decides.

    What lies below a directory that is left out is left out too: whoever walks does not go into it.
    """

    levels: tuple[tuple[str, tuple[IgnoreRule, ...]], ...] = ()

    def below(self, directory: str, text: str) -> IgnoreRules:
        """Return the rules in `directory`, whose `.gitignore` is `text`."""
        rules = tuple(
            rule for line in text.split("\n")[:MAX_PATTERNS] if (rule := _rule(line.rstrip("\r"))) is not None
        )
        return IgnoreRules((*self.levels, (directory, rules))) if rules else self

    def leave_out(self, path: str, *, is_directory: bool) -> bool:
        """Say whether `path`, relative to the workspace, is left out by a rule of its own."""
        for directory, rules in reversed(self.levels):
            inner = path[len(directory) + 1 :] if directory else path
            for rule in reversed(rules):
                if (is_directory or not rule.only_directories) and rule.matcher.fullmatch(inner):
                    return not rule.is_exception
        return False


def _rule(line: str) -> IgnoreRule | None:
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#") or len(line) > MAX_PATTERN_CHARACTERS:
        return None
    is_exception = line.startswith("!")
    pattern = line[1:] if is_exception else line
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/") if only_directories else pattern
    if not pattern:
        return None
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    source = glob_source(pattern.removeprefix("/"))
    return None if source is None else IgnoreRule(re.compile(source, re.DOTALL), is_exception, only_directories)


def glob_source(pattern: str) -> str | None:
    r"""Return a glob as a regular expression for whole paths: `*` and `?` stay within a name, `**` spans directories.

    None for what is no glob, such as a bracket that is never closed.

    >>> glob_source("src/**/*.py")
    'src/(?:[^/]+/)*[^/]*\\.py'
    """
    pieces: list[str] = []
    parts = re.sub(r"(?:\*\*/)+", "**/", pattern).split("/")
    if parts.count("**") > MAX_SPANS:
        return None
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            pieces.append(".+" if is_last else "(?:[^/]+/)*")
            continue
        name = _name_source(part)
        if name is None:
            return None
        pieces.append(name if is_last else name + "/")
    return "".join(pieces)


def _name_source(part: str) -> str | None:
    fixed: list[list[str]] = [[]]  # what stands between the stars
    at = 0
    while at < len(part):
        character = part[at]
        at += 1
        if character == "*":
            if fixed[-1] or len(fixed) == 1:
                fixed.append([])
        elif character == "?":
            fixed[-1].append("[^/]")
        elif character == "\\" and at < len(part):
            fixed[-1].append(re.escape(part[at]))
            at += 1
        elif character == "[":
            found = _class_source(part, at)
            if found is None:
                return None
            fixed[-1].append(found[0])
            at = found[1]
        else:
            fixed[-1].append(re.escape(character))
    first, *rest = ("".join(piece) for piece in fixed)
    if not rest:
        return first
    # The first place where the middle fits is as good as any other: without going back, stars cost no exponential time.
    return first + "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1]) + f"[^/]*{rest[-1]}"


def _class_source(part: str, at: int) -> tuple[str, int] | None:
    """Return the source of a bracket whose content starts at `at`, and where it ends."""
    start = at
    negated = part[at : at + 1] in ("!", "^")
    at += negated
    end = part.find("]", at + 1)
    if end < 0:
        return None
    inner = (
        part[start + negated : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("&&", "&\\&")
    )
    source = f"(?!/)[{'^' if negated else ''}{inner}]"
    try:
        re.compile(source)
    except re.error:  # a range such as z-a
        return None
    return source, end + 1


def glob_matcher(globs: Sequence[str]) -> re.Pattern[str] | None:
    """Return a matcher of whole paths for globs such as `*.py`, `src/**/*.ts` or `*.{js,ts}`; None when one is no glob.

    One without `/` matches a name at any depth.
    """
    sources: list[str] = []
    for text in globs:
        for pattern in _alternatives(text):
            source = glob_source(pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}")
            if source is None:
                return None
            sources.append(source)
    return re.compile("|".join(f"(?:{source})" for source in sources), re.DOTALL)


def _alternatives(pattern: str) -> list[str]:
    """Return a glob's braces written out, at most 64 globs."""
    found = [pattern]
    for _ in range(6):
        if not any("{" in one and "}" in one for one in found):
            break
        found = [written for one in found for written in _first_brace(one)][:64]
    return found


def _first_brace(pattern: str) -> list[str]:
    brace = re.search(r"\{([^{}]*)\}", pattern)
    if brace is None:
        return [pattern]
    before, after = pattern[: brace.start()], pattern[brace.end() :]
    return [f"{before}{choice}{after}" for choice in brace.group(1).split(",")]
