"""Screen what enters memory: instructions hidden in it, and characters that nobody sees. Pure.

Memory is read by a model in later sessions, so a text that was planted once would be obeyed again and again. What looks so
is quarantined, not removed: a person sees it, with what was hidden in it made visible.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from kipu.memory.injection import findings_in

_TAGS = range(0xE0000, 0xE0080)
_INVISIBLE = frozenset(
    [
        *range(0x202A, 0x202F),  # bidi embeddings and overrides
        *range(0x2066, 0x206A),  # bidi isolates
        0x200E, 0x200F, 0x061C,  # direction marks
        *range(0x200B, 0x200E),  # zero width
        *range(0x2060, 0x2066),  # word joiner, invisible operators
        *range(0x206A, 0x2070),  # deprecated format characters
        0xFEFF, 0x180E, 0x00AD, 0x034F,
        0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0,  # fillers
        *range(0xFFF9, 0xFFFC),  # interlinear annotations
        *range(0xE0100, 0xE01F0),  # variation selectors beyond those of pictures
        *_TAGS,
    ]
)  # fmt: skip
_JOINERS = frozenset("\u200c\u200d")
_SPACES = re.compile(r"\s+")


class Screened(NamedTuple):
    """A text without invisible characters, on one line, and what is suspicious about it."""

    text: str
    findings: tuple[str, ...]


def screen(text: str) -> Screened:
    """Return the text as it may be kept. What was written in tag characters is shown at its end, in brackets."""
    seen, hidden = [], []
    is_invisible = False
    for at, character in enumerate(text):
        code = ord(character)
        if code in _TAGS:
            hidden.append(chr(code - 0xE0000) if 0xE0020 <= code < 0xE007F else "")
            is_invisible = True
        elif code in _INVISIBLE:
            if character in _JOINERS and _joins(text, at):
                seen.append(character)
            else:
                is_invisible = True
        elif unicodedata.category(character) == "Cc":
            seen.append(" ")
            is_invisible = is_invisible or character not in "\t\n\r\v\f\x85"
        else:
            seen.append(character)
    visible = _SPACES.sub(" ", "".join(seen)).strip()
    told = "".join(hidden).strip()
    whole = f"{visible} {told}"
    findings = [*(["invisible"] if is_invisible else []), *findings_in(whole)]
    return Screened(f"{visible} [hidden in it: {told}]" if told else visible, tuple(findings))


def _joins(text: str, at: int) -> bool:
    """Say whether a joiner stands where scripts and pictures need one: between two of them."""
    if not 0 < at < len(text) - 1:
        return False
    return all(ord(each) > 0x2FF and unicodedata.category(each)[0] in "LMS" for each in (text[at - 1], text[at + 1]))
