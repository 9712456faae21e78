"""Numbers that people write."""

from __future__ import annotations

MOST_DIGITS = 4300  # what Python reads unless it is told otherwise


def number_in(text: str) -> int | None:
    """Return the number that is written in plain digits, None for other text: `²` is a digit to Python, and no number.

    >>> number_in("12"), number_in("-1"), number_in("²")
    (12, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def number_or_name(text: str) -> int | str:
    """Return the number, below zero too, else the text, which is a name then."""
    number = number_in(text.removeprefix("-"))
    return text if number is None else -number if text.startswith("-") else number
