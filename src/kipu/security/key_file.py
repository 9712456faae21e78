"""Keys as text, and the files they stand in: one key a line, the newest last, replaced as a whole or not at all."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from kipu.errors import KeySourceError
from kipu.ports.clock import Entropy
from kipu.security.cipher import KEY_BYTES
from kipu.security.key_provider import LocalKeys

_LINE = "kipu-key-1"


def key_line(key: bytes) -> str:
    """Return a key as one line of a key file."""
    return f"{_LINE} {base64.urlsafe_b64encode(key).decode()}\n"


def keys_in(text: str, *, source: str) -> list[bytes]:
    """Return the keys of a text: one per line or comma, oldest first, `#` begins a comment. Raises: KeySourceError."""
    keys = []
    for line in text.replace(",", "\n").splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            key = base64.b64decode(words[-1].encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise KeySourceError(source=source, reason="a line is not base64") from error
        if len(key) != KEY_BYTES or words[:-1] not in ([], [_LINE]):
            raise KeySourceError(source=source, reason=f"a line is not {_LINE} and {KEY_BYTES} bytes in base64")
        keys.append(key)
    if not keys:
        raise KeySourceError(source=source, reason="there is no key in it")
    return keys


def file_keys(path: Path, *, entropy: Entropy) -> LocalKeys:
    """Return the keys of a key file that only its owner can read. Raises: KeySourceError."""
    keys = keys_in(_read(path), source=f"the file {path}")
    return LocalKeys(keys, entropy=entropy, source=f"the file {path}", again=lambda: file_keys(path, entropy=entropy))


def _read(path: Path) -> str:
    source = f"the file {path}"
    try:
        descriptor = os.open(path, os.O_RDONLY)
        with os.fdopen(descriptor, "r", encoding="utf-8") as file:
            mode = os.fstat(descriptor).st_mode
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise KeySourceError(source=source, reason=str(error)) from error
    if stat.S_IMODE(mode) & 0o077:
        raise KeySourceError(source=source, reason="others can read or change it; run chmod 600 on it")
    return text


def create_key_file(path: Path, *, entropy: Entropy) -> None:
    """Write a new key file for its owner only, durably. Raises: KeySourceError (there is one)."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise KeySourceError(source=f"the file {path}", reason=str(error)) from error
    _write(descriptor, key_line(entropy.random_bytes(KEY_BYTES)))
    _sync_folder(path.parent)


def add_key(path: Path, *, entropy: Entropy) -> None:
    """Add a fresh key to a key file, durably: it wraps from now on, the others still unwrap. Raises: KeySourceError."""
    file_keys(path, entropy=entropy)
    text = _read(path)
    _replace(path, f"{text}{'' if text.endswith(chr(10)) else chr(10)}{key_line(entropy.random_bytes(KEY_BYTES))}")


def keep_keys(path: Path, keys: Sequence[bytes]) -> None:
    """Make these the only keys of a key file. Raises: KeySourceError."""
    _replace(path, "".join(map(key_line, keys)))


def _replace(path: Path, text: str) -> None:
    """Put the text in the file's place, so that a kill leaves the old one or the new one and never half a key."""
    target = path.resolve()
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        _write(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), text)
        os.replace(fresh, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise KeySourceError(source=f"the file {path}", reason=str(error)) from error


def _write(descriptor: int, text: str) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
