"""Passphrases asked for on a terminal: never shown, never an argument of a command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache


def asking(what: str, *, twice: bool = False) -> Callable[[], str] | None:
    """Return what asks for a passphrase, once however often it is called; None where nobody sits at a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    @cache
    def ask() -> str:
        from getpass import getpass

        from kipu.errors import KeySourceError

        text = getpass(f"{what}: ", stream=sys.stderr)
        if twice and getpass("The same once more: ", stream=sys.stderr) != text:
            raise KeySourceError(source="the passphrase", reason="the two differ")
        return text

    return ask
