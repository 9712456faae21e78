"""Twins: names that people cannot tell apart, or that a volume takes for one."""

from __future__ import annotations

import os
import unicodedata
from typing import NamedTuple

# Apple's file systems skip these in names, so that ".g<U+200C>it" is ".git" there.
_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF], None)


class Twin(NamedTuple):
    """The name that is there, as a path, and in what it differs from the one that was asked for."""

    path: str
    difference: str


def folded(name: str) -> str:
    """Return the form in which a name is compared where taking two names for one is the safe side."""
    return unicodedata.normalize("NFC", name.translate(_IGNORED)).casefold()


def unicode_twin(name: str, directory: int) -> str | None:
    """Return a name in the open directory that is the same text written with other code points (NFC, NFD), if there is one."""
    wanted = unicodedata.normalize("NFC", name)
    for other in os.listdir(directory):
        if other.isascii() and name.isascii():  # such are twins only of themselves
            continue
        if other != name and unicodedata.normalize("NFC", other) == wanted:
            return other
    return None


def case_twin(name: str, directory: int) -> str | None:
    """Return the name under which `name` stands in the open directory, where the volume does not tell case apart.

    On a volume that does, `a` and `A` are two files that people can tell apart, and this is None.
    """
    swapped = name.swapcase()
    if swapped == name or not _same_file(name, swapped, directory=directory):
        return None
    names = os.listdir(directory)
    if name in names:  # two links to one file
        return None
    return next((other for other in names if other.casefold() == name.casefold()), None)


def _same_file(name: str, other: str, *, directory: int) -> bool:
    try:
        first = os.stat(name, dir_fd=directory, follow_symlinks=False)
        second = os.stat(other, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(first, second)
