"""What a text must not hide from the person who decides about it."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

SECTION_MARK = "<!-- kipu:learned -->"  # where what was learned stands in an instruction; no text may pretend to be it
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")  # letters and symbols that are drawn as nothing
_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F))
_NOTED = 20


class Hidden(NamedTuple):
    """One character that a person does not see, or that changes what they see."""

    offset: int
    code: int

    @property
    def name(self) -> str:
        """Return it as U+200B with its Unicode name."""
        name = unicodedata.name(chr(self.code), "")
        return f"U+{self.code:04X}{' ' + name if name else ''}"


def hidden_characters(text: str) -> list[Hidden]:
    """Return the characters of a text that are invisible or steer how it is shown, in order.

    These are controls other than line feed and tab, format characters (zero width, bidirectional, tags), line and paragraph
    separators, variation selectors, private use, and letters that are drawn as nothing.
    """
    if text.isascii() and text.isprintable():
        return []
    return [Hidden(offset, ord(char)) for offset, char in enumerate(text) if _is_hidden(char)]


def _is_hidden(char: str) -> bool:
    if char in "\n\t":
        return False
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or char in _BLANK_LETTERS:
        return True
    code = ord(char)
    return any(low <= code <= high for low, high in _SELECTORS)


def warning_of(text: str) -> str | None:
    """Return in words which characters of a text are hidden, None for none."""
    found = hidden_characters(text)
    if not found:
        return None
    names = list(dict.fromkeys(hidden.name for hidden in found))
    more = f" and {len(names) - _NOTED} more" if len(names) > _NOTED else ""
    number = "one hidden character" if len(found) == 1 else f"{len(found)} hidden characters"
    return f"{number} ({', '.join(names[:_NOTED])}{more})"


def shown(text: str) -> str:
    r"""Return a text with what it hides written out, so that nothing of it steers a terminal or goes unseen.

    >>> shown("a\u200bb")
    'a\\u200bb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _is_hidden(char) else char for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def folded(text: str | None) -> str:
    """Return a text as it is compared with earlier ones: without what is hidden, white space and case apart."""
    seen = "".join(char for char in text or "" if not _is_hidden(char) or char in "\n\t")
    return " ".join(unicodedata.normalize("NFKC", seen).casefold().split())
