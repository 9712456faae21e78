"""Where key-encryption keys come from: a file, the environment, a passphrase, a keyring, or a key management service."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from kipu.errors import KeySourceError, KeyUnavailableError, MissingExtraError
from kipu.ports.clock import Entropy
from kipu.security.cipher import KEY_BYTES, aes_gcm

_NONCE_BYTES = 12
_LINE = "kipu-key-1"
SCRYPT_COST = 2**17


class KeyProvider(Protocol):
    """Wrap and unwrap data keys. Only this object knows the key-encryption keys.

    Contract: `unwrap` gives what `wrap` got under the same context, or raises KeyUnavailableError: never other bytes.
    """

    @property
    def current(self) -> str:
        """Return the name of the key that wraps from now on; it does not tell the key."""
        ...

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return `key` wrapped under `current`."""
        ...

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return the key that was wrapped under `kek`. Raises: KeyUnavailableError."""
        ...


class KeySource(Protocol):
    """What a user names; it becomes a provider when a store is opened."""

    async def open(self, salt: Salt) -> KeyProvider:
        """Return the provider; `salt` is the store's, for keys made of passphrases. Raises: KeySourceError."""
        ...


Salt = Callable[[], Awaitable[bytes]]
Wrapping = Callable[[bytes, bytes], bytes]


def kek_name(key: bytes) -> str:
    """Return the name that a key has by what it is, so that a wrong key is known before it is tried."""
    return "k" + hmac.digest(key, b"kipu key name 1", "sha256").hex()[:16]


class LocalKeys:
    """Key-encryption keys of 32 bytes held by this process. The last one wraps, all of them unwrap."""

    def __init__(self, keys: Sequence[bytes], *, entropy: Entropy, source: str = "the program") -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise KeySourceError(source=source, reason=f"a key is {KEY_BYTES} bytes, and there must be one")
        self._keys = {kek_name(key): key for key in keys}
        self._current = kek_name(keys[-1])
        self._entropy = entropy

    @property
    def current(self) -> str:
        """Return the name of the last key."""
        return self._current

    async def open(self, salt: Salt) -> KeyProvider:
        """Return itself."""
        return self

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return `key` under the last key, with AES-256-GCM."""
        nonce = self._entropy.random_bytes(_NONCE_BYTES)
        wrapped: bytes = aes_gcm(self._keys[self._current]).encrypt(nonce, key, context + self._current.encode())
        return nonce + wrapped

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return what was wrapped under the key of that name."""
        key = self._keys.get(kek)
        if key is None:
            raise _unavailable(context, kek, given=self._keys)
        primitive = aes_gcm(key)
        from cryptography.exceptions import InvalidTag

        try:
            plain: bytes = primitive.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], context + kek.encode())
        except (InvalidTag, ValueError) as error:
            raise _unavailable(context, kek, given=self._keys) from error
        return plain


class PassphraseKeys:
    """Keys made of passphrases by scrypt and the store's salt; the last one wraps."""

    def __init__(self, passphrases: Sequence[str], *, entropy: Entropy, cost: int = SCRYPT_COST) -> None:
        if not passphrases or not all(passphrases):
            raise KeySourceError(source="a passphrase", reason="it is empty")
        self._passphrases = tuple(passphrases)
        self._entropy = entropy
        self._cost = cost

    async def open(self, salt: Salt) -> KeyProvider:
        """Return the keys of the passphrases with this store's salt; it takes about 0.3 s each, on purpose."""
        salted = await salt()
        keys = [await asyncio.to_thread(self._derive, text, salted) for text in self._passphrases]
        return LocalKeys(keys, entropy=self._entropy, source="a passphrase")

    def _derive(self, text: str, salt: bytes) -> bytes:
        memory = 128 * 8 * self._cost + 1024 * 1024
        return hashlib.scrypt(
            text.encode(), salt=salt, n=self._cost, r=8, p=1, maxmem=memory + memory // 2, dklen=KEY_BYTES
        )


class KmsKeys:
    """Keys of a key management service: two functions of the user's that wrap and unwrap, called in a thread.

    `older` are the unwrapping functions of keys that were in use before, by their names.
    """

    def __init__(
        self, name: str, *, wrap: Wrapping, unwrap: Wrapping, older: Mapping[str, Wrapping] | None = None
    ) -> None:
        self._name = name
        self._wrap = wrap
        self._unwrap = {**(older or {}), name: unwrap}

    @property
    def current(self) -> str:
        """Return the name given."""
        return self._name

    async def open(self, salt: Salt) -> KeyProvider:
        """Return itself."""
        return self

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return what the service made of `key`; `context` is to be bound (an encryption context). Raises: KeyUnavailableError."""
        try:
            return await asyncio.to_thread(self._wrap, key, context)
        except Exception as error:
            raise _unavailable(context, self._name, given=self._unwrap) from error

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return what the service made of `wrapped`."""
        function = self._unwrap.get(kek)
        if function is None:
            raise _unavailable(context, kek, given=self._unwrap)
        try:
            key = await asyncio.to_thread(function, wrapped, context)
        except Exception as error:
            raise _unavailable(context, kek, given=self._unwrap) from error
        if len(key) != KEY_BYTES:
            raise _unavailable(context, kek, given=self._unwrap)
        return key


class ChangingKeys:
    """The keys of one source for what is wrapped from now on, and those of others to unwrap: moving from one to another."""

    def __init__(self, newest: KeySource, *older: KeySource) -> None:
        self._sources = (newest, *older)
        self._providers: list[KeyProvider] = []

    @property
    def current(self) -> str:
        """Return the name of the newest source's key."""
        return self._providers[0].current

    async def open(self, salt: Salt) -> KeyProvider:
        """Return itself, every source opened."""
        self._providers = [await source.open(salt) for source in self._sources]
        return self

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return `key` wrapped by the newest source."""
        return await self._providers[0].wrap(key, context)

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return the key, from whichever source has `kek`."""
        refused: KeyUnavailableError | None = None
        for provider in self._providers:
            try:
                return await provider.unwrap(kek, wrapped, context=context)
            except KeyUnavailableError as error:
                refused = refused or error
        raise refused or _unavailable(context, kek, given={})


def _unavailable(context: bytes, kek: str, *, given: Mapping[str, object]) -> KeyUnavailableError:
    names = ", ".join(sorted(given)) or "none"
    return KeyUnavailableError(
        store="",
        reason="",
        what=context.decode(errors="replace").rstrip(", ").replace("kipu data key 1", "The data key"),
        kek=kek,
        given=names,
    )


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
    return LocalKeys(keys_in(text, source=source), entropy=entropy, source=source)


def create_key_file(path: Path, *, entropy: Entropy) -> None:
    """Write a new key file for its owner only, durably. Raises: KeySourceError (there is one)."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise KeySourceError(source=f"the file {path}", reason=str(error)) from error
    _write_line(descriptor, entropy)


def add_key(path: Path, *, entropy: Entropy) -> None:
    """Add a fresh key to a key file, durably: it wraps from now on, the others still unwrap. Raises: KeySourceError."""
    file_keys(path, entropy=entropy)
    _write_line(os.open(path, os.O_WRONLY | os.O_APPEND), entropy)


def _write_line(descriptor: int, entropy: Entropy) -> None:
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key_line(entropy.random_bytes(KEY_BYTES)))
        file.flush()
        os.fsync(descriptor)


def environment_keys(name: str, *, environment: Mapping[str, str], entropy: Entropy) -> LocalKeys:
    """Return the keys of an environment variable, comma between them, the newest last. Raises: KeySourceError."""
    source = f"the environment variable {name}"
    if not environment.get(name):
        raise KeySourceError(source=source, reason="it is not set")
    return LocalKeys(keys_in(environment[name], source=source), entropy=entropy, source=source)


def keyring_keys(name: str, *, entropy: Entropy) -> LocalKeys:
    """Return the keys that the system's keyring has for service `kipu` and this name. Raises: KeySourceError, MissingExtraError."""
    try:
        keyring = import_module("keyring")
    except ImportError as error:
        raise MissingExtraError(feature="a key from the keyring", package="keyring", extra="security") from error
    source = f"the keyring entry kipu/{name}"
    text = keyring.get_password("kipu", name)
    if not text:
        raise KeySourceError(source=source, reason="there is no such entry")
    return LocalKeys(keys_in(text, source=source), entropy=entropy, source=source)


def key_source(text: str, *, environment: Mapping[str, str], entropy: Entropy) -> KeySource:
    """Return the source that `file:PATH`, `env:NAME`, `passphrase:NAME` (a variable) or `keyring:NAME` names.

    Raises: KeySourceError, MissingExtraError.
    """
    kind, _, name = text.partition(":")
    if kind == "file" and name:
        return file_keys(Path(name).expanduser(), entropy=entropy)
    if kind == "env" and name:
        return environment_keys(name, environment=environment, entropy=entropy)
    if kind == "keyring" and name:
        return keyring_keys(name, entropy=entropy)
    if kind == "passphrase" and name:
        if not environment.get(name):
            raise KeySourceError(source=f"the environment variable {name}", reason="it is not set")
        return PassphraseKeys([environment[name]], entropy=entropy)
    reason = "it is one of file:PATH, env:NAME, passphrase:NAME and keyring:NAME"
    raise KeySourceError(source=repr(text), reason=reason)
