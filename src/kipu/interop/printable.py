"""Text that can be shown: what would steer a terminal or hide its own direction is written out instead (situation 65)."""

from __future__ import annotations

import re

# C0 and C1 controls but for line break and tab; bidirectional overrides and isolates; line and paragraph separators.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|[\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return `text` with control characters escaped, such as `\x1b`; line breaks and tabs stay.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _STEERING.sub(_escaped, text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    """Return `text` as one line, its white space folded and control characters escaped."""
    return text if text.isascii() and text.isprintable() else printable(" ".join(text.split()))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
