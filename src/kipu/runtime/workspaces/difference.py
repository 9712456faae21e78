"""How files differ, as a unified diff that people and `patch` read."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import NamedTuple

_BINARY_WITHIN_BYTES = 8192
MAX_DIFF_LINES = 20_000  # of one side: comparing takes the product of both


class FileVersion(NamedTuple):
    """One side of a comparison: content and permissions, or what a link says."""

    data: bytes
    mode: int = 0o644
    is_link: bool = False


def file_difference(path: str, before: FileVersion | None, *, after: FileVersion | None) -> str:
    """Return how one file differs, "" when it does not; None stands for "is not there". Binary files are named only. Pure."""
    if before == after:
        return ""
    return "".join(f"{line}\n" for line in _lines(path, before, after))


def _lines(path: str, before: FileVersion | None, after: FileVersion | None) -> Iterator[str]:
    old, new = _name("a", path, before), _name("b", path, after)
    yield f"diff --git a/{_printable(path)} b/{_printable(path)}"
    yield from _mode_lines(before, after)
    first, second = before.data if before else b"", after.data if after else b""
    if first == second:
        return
    if _is_binary(first) or _is_binary(second):
        yield f"Binary files {old} and {new} differ"
        return
    first_lines, second_lines = _text(first), _text(second)
    if max(len(first_lines), len(second_lines)) > MAX_DIFF_LINES:
        yield f"Files {old} and {new} differ ({len(first_lines)} and {len(second_lines)} lines)"
        return
    for line in difflib.unified_diff(first_lines, second_lines, old, new, lineterm=""):
        body, has_end, _ = line.partition("\n")
        yield body
        if not has_end and line[:1] in " +-" and not line.startswith(("--- ", "+++ ")):
            yield "\\ No newline at end of file"


def _mode_lines(before: FileVersion | None, after: FileVersion | None) -> Iterator[str]:
    if before is None and after is not None:
        yield f"new file mode {_mode(after)}"
    elif before is not None and after is None:
        yield f"deleted file mode {_mode(before)}"
    elif before is not None and after is not None and _mode(before) != _mode(after):
        yield f"old mode {_mode(before)}"
        yield f"new mode {_mode(after)}"


def _mode(version: FileVersion) -> str:
    return "120000" if version.is_link else f"100{version.mode:03o}"


def _name(side: str, path: str, version: FileVersion | None) -> str:
    return "/dev/null" if version is None else f"{side}/{_printable(path)}"


def _printable(path: str) -> str:
    """Return the path on one line, also where its name holds line ends or bytes that are no text."""
    return "".join(character if character.isprintable() else _escaped(character) for character in path)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_WITHIN_BYTES]


def _text(data: bytes) -> list[str]:
    """Return the lines with their ends, split at line feeds only; bytes that are no text are shown as such."""
    *lines, last = _decoded(data).split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
