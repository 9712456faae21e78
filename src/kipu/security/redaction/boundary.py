"""Secrets that a list of texts holds between its items: split over parts of a message, lines of a file, words of a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from kipu.security.redaction.finder import Span
from kipu.security.redaction.rule import Tier

_MOST_BYTES = 262_144
_OF_COMMANDS = frozenset(("command-flag", "command-user", "command-secret", "sshpass", "named-argument"))


class Piece(NamedTuple):
    """The part of a secret that stands in one item; the first piece is where its replacement stands."""

    item: int
    start: int
    end: int
    rule: str
    is_first: bool


def pieces_across(texts: Sequence[bytes], find: Callable[[bytes], list[Span]]) -> list[Piece]:
    """Return what is found in the items together and not in one alone, in order; none of them meets another one.

    The items are looked at as one text, as lines, and as the words of a command.
    """
    if len(texts) < 2 or sum(map(len, texts)) > _MOST_BYTES:
        return []
    taken: list[Piece] = []
    for joint in (b"", b"\n", b" "):
        if joint == b"\n" and all(text.endswith(b"\n") for text in texts[:-1]):
            continue
        starts = list(accumulate((len(text) + len(joint) for text in texts), initial=0))
        for span in find(joint.join(texts)):
            pieces = _pieces(span, starts, texts=texts)
            if _counts(span, pieces, joint=joint) and not any(_meets(piece, old) for piece in pieces for old in taken):
                taken += pieces
    return sorted(taken)


def _counts(span: Span, pieces: Sequence[Piece], *, joint: bytes) -> bool:
    if joint == b" ":
        return span.rule in _OF_COMMANDS and len(pieces) == 1
    return len(pieces) > 1 and (joint == b"\n" or span.tier <= Tier.FORMAT)


def _pieces(span: Span, starts: Sequence[int], *, texts: Sequence[bytes]) -> list[Piece]:
    found: list[Piece] = []
    for item, text in enumerate(texts):
        start, end = max(span.start, starts[item]), min(span.end, starts[item] + len(text))
        if start < end:
            found.append(Piece(item, start - starts[item], end - starts[item], span.rule, not found))
    return found


def _meets(one: Piece, other: Piece) -> bool:
    return one.item == other.item and one.start < other.end and other.start < one.end
