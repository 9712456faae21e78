"""Text as it is meant: without what nobody sees, so that an invisible character or a colour within a secret does not hide it."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass

# Zero-width and direction marks, soft hyphens, variation selectors, tags; colours of a terminal; full-width and mathematical letters.
_DISGUISE = re.compile(
    rb"\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xa9]|\xef\xbb\xbf|\xc2\xad|\xcd\x8f|\xe1\xa0\x8e|\xef\xb8[\x80-\x8f]|\xf3\xa0[\x80-\x87][\x80-\xbf]"
    rb"|\x1b\[[0-9;]{0,20}[A-Za-z]|\\(?:x1b|u001b|033)\[[0-9;]{0,20}m|\xef\xbc[\x81-\xbf]|\xef\xbd[\x80-\x9e]|\xf0\x9d[\x90-\x9f][\x80-\xbf]"
)


@dataclass(frozen=True, slots=True)
class Plain:
    """A text without its disguise, and where in the disguised one its bytes are."""

    data: bytes
    places: tuple[int, ...]  # in `data`, where something was taken out or put in its plain form
    origins: tuple[int, ...]  # where the bytes from there on stand in the disguised text
    letters: frozenset[int]  # in `data`, the letters that stand for a look-alike of several bytes

    def origin(self, start: int, end: int) -> tuple[int, int] | None:
        """Return where a span stands in the disguised text, None where nothing is disguised in it."""
        if not any(
            start < place < end
            for place in self.places[bisect_right(self.places, start) : bisect_right(self.places, end)]
        ):
            return None
        return self._at(start), self._at(end) if end - 1 in self.letters else self._at(end - 1) + 1

    def _at(self, place: int) -> int:
        number = bisect_right(self.places, place) - 1
        return place if number < 0 else self.origins[number] + place - self.places[number]


def undisguised(data: bytes) -> Plain | None:
    """Return the text without disguise, None where it has none: the usual case, and quickly told."""
    if _DISGUISE.search(data) is None:
        return None
    parts: list[bytes] = []
    places: list[int] = []
    origins: list[int] = []
    letters: set[int] = set()
    at = size = 0
    for found in _DISGUISE.finditer(data):
        start, end = found.span()
        plain = _plain(found[0])
        parts += [data[at:start], plain]
        size += start - at
        if plain:
            places.append(size)
            origins.append(start)
            letters.add(size)
        size += len(plain)
        places.append(size)
        origins.append(end)
        at = end
    return Plain(b"".join([*parts, data[at:]]), tuple(places), tuple(origins), frozenset(letters))


def _plain(found: bytes) -> bytes:
    """Return the plain letter that a look-alike is, nothing for what is invisible."""
    if found[:2] not in (b"\xef\xbc", b"\xef\xbd", b"\xf0\x9d"):
        return b""
    letter = unicodedata.normalize("NFKC", found.decode("utf-8", "replace"))
    return letter.encode() if letter.isascii() else b""
