"""A key made where there is none, and a store that is encrypted from its beginning."""

from __future__ import annotations

from typing import NamedTuple

from kipu.errors import KeySourceError
from kipu.ports.home_path import home_path
from kipu.security.cipher import KEY_BYTES
from kipu.security.key_file import create_key_file, file_keys, key_line, keys_in
from kipu.security.key_finder import KeyFinder
from kipu.security.key_sources import read_keyring, write_keyring


class MadeKey(NamedTuple):
    """Whether a key was made now, and the line to put into the environment where it has to go there."""

    made: bool
    line: str | None = None


def make_key(text: str, finder: KeyFinder) -> MadeKey:
    """Make the key that a source names, unless it is there. Raises: KeySourceError, MissingExtraError."""
    kind, _, name = text.partition(":")
    if kind == "file" and name:
        path = home_path(name)
        if path.exists():
            file_keys(path, entropy=finder.entropy)  # it can be used, or this says why not
            return MadeKey(False)
        create_key_file(path, entropy=finder.entropy)
        return MadeKey(True)
    if kind == "keyring" and name:
        if found := read_keyring(name):
            keys_in(found, source=f"the keyring entry kipu/{name}")
            return MadeKey(False)
        write_keyring(name, _fresh(finder))
        return MadeKey(True)
    if kind == "env" and name and not finder.environment.get(name):
        return MadeKey(True, _fresh(finder).strip())
    finder.open(text)
    return MadeKey(False)


def absolute_source(text: str) -> str:
    """Return the text that names a source from wherever a command is run. Raises: KeySourceError (a path with a colon in front)."""
    kind, _, name = text.partition(":")
    if kind != "file":
        return text
    if not name:
        raise KeySourceError(source=repr(text), reason="there is no path in it")
    return f"file:{home_path(name).absolute()}"


def _fresh(finder: KeyFinder) -> str:
    return key_line(finder.entropy.random_bytes(KEY_BYTES))
