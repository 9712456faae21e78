"""A change of a text as a unified diff, in bounded time."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

CONTEXT_LINES = 3
MAX_DIFF_CHARACTERS = 60_000
MAX_LINE_CHARACTERS = 500
# Beyond this many pairs of lines the middle is shown as removed and added: finding out more may take minutes.
_MAX_PAIRS = 4_000_000


class Change(NamedTuple):
    """Lines `before_start:before_end` became lines `after_start:after_end` (from 0)."""

    before_start: int
    before_end: int
    after_start: int
    after_end: int


def unified_diff(before: str | None, after: str, *, path: str) -> str:
    """Return the diff from `before` (None: there was no file) to `after`, "" when they are equal."""
    old, new = _lines(before or ""), _lines(after)
    changes = list(_changes(old, new))
    if not changes:
        return ""
    said = [f"--- {'/dev/null' if before is None else 'a/' + path}", f"+++ b/{path}"]
    length = 0
    for hunk in _hunks(changes):
        for line in _hunk_lines(hunk, old, new):
            said.append(line)
            length += len(line) + 1
            if length > MAX_DIFF_CHARACTERS:
                return "\n".join([*said, "… the diff is longer; its rest is not shown"]) + "\n"
    return "\n".join(said) + "\n"


def changed_lines(before: str | None, after: str) -> tuple[int, int]:
    """Return how many lines were added and how many removed."""
    changes = list(_changes(_lines(before or ""), _lines(after)))
    return sum(c.after_end - c.after_start for c in changes), sum(c.before_end - c.before_start for c in changes)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        lines.pop()
    return lines


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    start, least = 0, min(len(old), len(new))
    while start < least and old[start] == new[start]:
        start += 1
    end = 0
    while end < least - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    if not old_middle and not new_middle:
        return
    if len(old_middle) * len(new_middle) > _MAX_PAIRS:
        yield Change(start, len(old) - end, start, len(new) - end)
        return
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old_middle, new_middle).get_opcodes():
        if tag != "equal":
            yield Change(start + a, start + b, start + c, start + d)


def _hunks(changes: Sequence[Change]) -> Iterator[list[Change]]:
    hunk: list[Change] = []
    for change in changes:
        if hunk and change.before_start - hunk[-1].before_end > 2 * CONTEXT_LINES:
            yield hunk
            hunk = []
        hunk.append(change)
    yield hunk


def _hunk_lines(hunk: Sequence[Change], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    lead = min(CONTEXT_LINES, first.before_start)
    start, end = first.before_start - lead, min(len(old), last.before_end + CONTEXT_LINES)
    new_start = first.after_start - lead
    new_end = last.after_end + end - last.before_end
    yield f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@"
    at = start
    for change in hunk:
        yield from (_shown(" ", line) for line in old[at : change.before_start])
        yield from (_shown("-", line) for line in old[change.before_start : change.before_end])
        yield from (_shown("+", line) for line in new[change.after_start : change.after_end])
        at = change.before_end
    yield from (_shown(" ", line) for line in old[at:end])


def _span(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start},{length}"


def _shown(sign: str, line: str) -> str:
    if len(line) > MAX_LINE_CHARACTERS:
        return f"{sign}{line[:MAX_LINE_CHARACTERS]}… ({len(line)} characters)"
    return sign + line
