"""The settings behind the question mark of a URL."""

from __future__ import annotations

from urllib.parse import parse_qsl


def settings_in(query: str, *, strict: bool = False) -> list[tuple[str, str]]:
    """Return names and values, empty ones too; a plus is a plus, as it is in a path or a password, and no space.

    Raises: ValueError (with `strict`: what is there is no list of settings).

    >>> settings_in("archive=/srv/c%2B+&db=")
    [('archive', '/srv/c++'), ('db', '')]
    """
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, strict_parsing=strict and bool(query))
