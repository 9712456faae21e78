"""Exact replacement in a text, all edits or none, with line endings left as they are."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kipu.runtime.tools.edit_mismatch import found_often, nearest

_BREAK = re.compile(r"\r?\n")


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Put `new` in the place of `old`: of its one occurrence, or of all of them."""

    old: str
    new: str
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class EditFailure:
    """Why an edit cannot be made: `word` for programs, `text` for the model."""

    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The text after all edits, and how many places each of them changed."""

    text: str
    counts: tuple[int, ...]


def apply_edits(text: str, edits: Sequence[TextEdit], *, newline: str = "\n") -> Edited | EditFailure:
    """Return the text after all edits, each on what the one before left, or why one of them cannot be made.

    Line breaks in `old` match those of the text whichever kind they are; `new` gets the kind of the lines it replaces,
    else `newline`. What no edit names stays as it is, character for character.
    """
    counts: list[int] = []
    for number, edit in enumerate(edits, start=1):
        done = _apply(text, edit, newline=newline)
        if isinstance(done, EditFailure):
            which = f" Edit {number} of {len(edits)}:" if len(edits) > 1 else ""
            return EditFailure(done.word, f"Nothing was changed.{which} {done.text}")
        text = done.text
        counts += done.counts
    return Edited(text, tuple(counts))


def _apply(text: str, edit: TextEdit, *, newline: str) -> Edited | EditFailure:
    old, new = _unified(edit.old), _unified(edit.new)
    if not old:
        return EditFailure(
            "empty_old_text", "old_text is empty. Use write_file for a new file, or name text to replace."
        )
    if old == new:
        return EditFailure("no_change", "old_text and new_text are the same.")
    plain = text.replace("\r\n", "\n")
    places = _places(plain, old)
    if not places:
        return EditFailure("not_found", nearest(plain, old, new=new))
    if len(places) > 1 and not edit.replace_all:
        return EditFailure("not_unique", found_often(plain, places))
    if len(plain) == len(text):
        return Edited(_replaced(text, [(at, at + len(old)) for at in places], new=new, newline=newline), (len(places),))
    breaks = _break_places(text)
    spans = [(at + bisect_left(breaks, at), at + len(old) + bisect_left(breaks, at + len(old))) for at in places]
    return Edited(_replaced(text, spans, new=new, newline=newline), (len(places),))


def _unified(text: str) -> str:
    return text.replace("\r\n", "\n")


def _places(text: str, old: str) -> list[int]:
    places, at = [], text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + len(old))
    return places


def _break_places(text: str) -> list[int]:
    r"""Return where, in the text with plain line breaks, those stand that are `\r\n` in `text`."""
    return [found.start() - index for index, found in enumerate(re.finditer("\r\n", text))]


def _replaced(text: str, spans: Sequence[tuple[int, int]], *, new: str, newline: str) -> str:
    pieces, at = [], 0
    for start, end in spans:
        own = _BREAK.search(text, start, end) if "\n" in new else None
        pieces += [text[at:start], new.replace("\n", own.group() if own is not None else newline)]
        at = end
    return "".join([*pieces, text[at:]])
