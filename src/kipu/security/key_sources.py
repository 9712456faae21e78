"""Where key-encryption keys come from: a file, the environment, a passphrase, a keyring, or a key management service."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from kipu.errors import KeySourceError, MissingExtraError
from kipu.ports.clock import Entropy
from kipu.ports.home_path import home_path
from kipu.security.cipher import KEY_BYTES
from kipu.security.key_file import file_keys, keys_in
from kipu.security.key_provider import KeyProvider, KeySource, LocalKeys, Salt

SCRYPT_COST = 2**17
PASSPHRASE = "KIPU_PASSPHRASE"  # noqa: S105 - the name of a variable
OLD_PASSPHRASE = "KIPU_OLD_PASSPHRASE"  # noqa: S105
SERVICES = "kipu.keys"  # the group of entry points in which packages offer key services
KINDS = "file:PATH, env:NAME, passphrase, passphrase:NAME, keyring:NAME and service:NAME"
Ask = Callable[[], str]


class PassphraseKeys:
    """Keys made of passphrases by scrypt and the store's salt; the last one wraps."""

    def __init__(self, passphrases: Sequence[str], *, entropy: Entropy, cost: int = SCRYPT_COST) -> None:
        if not passphrases or not all(passphrases):
            raise KeySourceError(source="a passphrase", reason="it is empty")
        self._passphrases = tuple(passphrases)
        self._entropy = entropy
        self._cost = cost
        self._made: dict[bytes, LocalKeys] = {}

    async def open(self, salt: Salt) -> KeyProvider:
        """Return the keys of the passphrases with this store's salt; it takes about 0.3 s each, on purpose, and once."""
        salted = await salt()
        if salted not in self._made:
            keys = [await asyncio.to_thread(self._derive, text, salted) for text in self._passphrases]
            self._made[salted] = LocalKeys(keys, entropy=self._entropy, source="a passphrase")
        return self._made[salted]

    def _derive(self, text: str, salt: bytes) -> bytes:
        memory = 128 * 8 * self._cost + 1024 * 1024
        return hashlib.scrypt(
            text.encode(), salt=salt, n=self._cost, r=8, p=1, maxmem=memory + memory // 2, dklen=KEY_BYTES
        )


def environment_keys(name: str, *, environment: Mapping[str, str], entropy: Entropy) -> LocalKeys:
    """Return the keys of an environment variable, comma between them, the newest last. Raises: KeySourceError."""
    source = f"the environment variable {name}"
    if not environment.get(name):
        raise KeySourceError(source=source, reason="it is not set")
    keys = keys_in(environment[name], source=source)
    return LocalKeys(keys, entropy=entropy, source=source)


def keyring_keys(name: str, *, entropy: Entropy) -> LocalKeys:
    """Return the keys that the system's keyring has for service `kipu` and this name. Raises: KeySourceError, MissingExtraError."""
    text = read_keyring(name)
    source = f"the keyring entry kipu/{name}"
    if not text:
        raise KeySourceError(source=source, reason="there is no such entry")
    keys = keys_in(text, source=source)
    return LocalKeys(keys, entropy=entropy, source=source, again=lambda: keyring_keys(name, entropy=entropy))


def read_keyring(name: str) -> str:
    """Return the text of the entry kipu/NAME, empty where there is none. Raises: KeySourceError, MissingExtraError."""
    try:
        text: str | None = _keyring().get_password("kipu", name)
    except MissingExtraError:
        raise
    except Exception as error:  # backends raise what they like
        raise KeySourceError(source=f"the keyring entry kipu/{name}", reason=str(error)) from error
    return text or ""


def write_keyring(name: str, text: str) -> None:
    """Put the text into the entry kipu/NAME. Raises: KeySourceError, MissingExtraError."""
    try:
        _keyring().set_password("kipu", name, text)
    except MissingExtraError:
        raise
    except Exception as error:
        raise KeySourceError(source=f"the keyring entry kipu/{name}", reason=str(error)) from error


def _keyring() -> Any:
    try:
        return import_module("keyring")
    except ImportError as error:
        raise MissingExtraError(feature="a key from the keyring", package="keyring", extra="keyring") from error


def service_keys(name: str) -> KeySource:
    """Return what an installed package offers under the entry point NAME of the group `kipu.keys`. Raises: KeySourceError."""
    for found in entry_points(group=SERVICES, name=name):
        try:
            source: KeySource = found.load()()
        except Exception as error:
            raise KeySourceError(source=f"the key service {name}", reason=str(error)) from error
        return source
    raise KeySourceError(
        source=f"the key service {name}", reason=f"no package offers it as an entry point of {SERVICES}"
    )


def passphrase_of(name: str, *, environment: Mapping[str, str], ask: Ask | None) -> str:
    """Return the passphrase in a variable, else what `ask` gives. Raises: KeySourceError where neither has one."""
    text = environment.get(name) or (ask() if ask is not None else "")
    if not text:
        raise KeySourceError(
            source=f"the environment variable {name}", reason="it is not set, and there is no terminal to ask on"
        )
    return text


def passphrase_keys(
    name: str, *, environment: Mapping[str, str], entropy: Entropy, ask: Ask | None = None
) -> PassphraseKeys:
    """Return the keys of the passphrase in a variable, else of what `ask` gives. Raises: KeySourceError.

    KIPU_OLD_PASSPHRASE, where it is set, opens what a rotation that was cut has not come to.
    """
    text = passphrase_of(name, environment=environment, ask=ask)
    older = [environment[OLD_PASSPHRASE]] if environment.get(OLD_PASSPHRASE) and name == PASSPHRASE else []
    return PassphraseKeys([*older, text], entropy=entropy)


def key_source(text: str, *, environment: Mapping[str, str], entropy: Entropy, ask: Ask | None = None) -> KeySource:
    """Return the source that a text names: one of `KINDS`. `ask` gives a passphrase that no variable holds.

    Raises: KeySourceError, MissingExtraError.
    """
    kind, _, name = text.partition(":")
    if kind == "passphrase":
        return passphrase_keys(name or PASSPHRASE, environment=environment, entropy=entropy, ask=ask)
    if name:
        if kind == "file":
            return file_keys(home_path(name), entropy=entropy)
        if kind == "env":
            return environment_keys(name, environment=environment, entropy=entropy)
        if kind == "keyring":
            return keyring_keys(name, entropy=entropy)
        if kind == "service":
            return service_keys(name)
    raise KeySourceError(source=repr(text), reason=f"it is one of {KINDS}")
