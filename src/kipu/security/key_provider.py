"""Who wraps data keys: keys that this process holds, a key management service, or several of them while a store moves."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from kipu.errors import KeyServiceError, KeySourceError, KeyUnavailableError
from kipu.ports.clock import Entropy
from kipu.security.cipher import KEY_BYTES, aes_gcm

_NONCE_BYTES = 12
Salt = Callable[[], Awaitable[bytes]]
Wrapping = Callable[[bytes, bytes], bytes]


class KeyProvider(Protocol):
    """Wrap and unwrap data keys. Only this object knows the key-encryption keys.

    Contract: `unwrap` gives what `wrap` got under the same context, or raises KeyUnavailableError: never other bytes. A
    provider that cannot be reached now raises KeyServiceError.
    """

    @property
    def current(self) -> str:
        """Return the name of the key that wraps from now on; it does not tell the key."""
        ...

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return `key` wrapped under `current`."""
        ...

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return the key that was wrapped under `kek`. Raises: KeyUnavailableError, KeyServiceError."""
        ...


class KeySource(Protocol):
    """What a user names; it becomes a provider when a store is opened, and anew when the store's keys were rotated."""

    async def open(self, salt: Salt) -> KeyProvider:
        """Return the provider as it is now; `salt` is the store's, for keys made of passphrases. Raises: KeySourceError."""
        ...


def kek_name(key: bytes) -> str:
    """Return the name that a key has by what it is, so that a wrong key is known before it is tried."""
    return "k" + hmac.digest(key, b"kipu key name 1", "sha256").hex()[:16]


class LocalKeys:
    """Key-encryption keys of 32 bytes held by this process. The last one wraps, all of them unwrap.

    `again` reads them anew from where they came, so that a process that is running learns of a rotation.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        entropy: Entropy,
        source: str = "the program",
        again: Callable[[], LocalKeys] | None = None,
    ) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise KeySourceError(source=source, reason=f"a key is {KEY_BYTES} bytes, and there must be one")
        self._keys = {kek_name(key): key for key in keys}
        self._current = kek_name(keys[-1])
        self._entropy = entropy
        self._again = again

    @property
    def current(self) -> str:
        """Return the name of the last key."""
        return self._current

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Return the keys, oldest first."""
        return tuple(self._keys.values())

    async def open(self, salt: Salt) -> KeyProvider:
        """Return these keys, read anew where they can be."""
        return self._again() if self._again is not None else self

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
            raise _unavailable(context, kek, given=self._keys, wrong="its wrapping was changed or moved") from error
        return plain


class KmsKeys:
    """Keys of a key management service: two functions of the user's that wrap and unwrap, called in a thread.

    They get the bytes and a context to bind (an encryption context, associated data). What they refuse for good is a
    PermissionError or a ValueError; anything else that they raise counts as a service that cannot be reached now. `older`
    are the unwrapping functions of keys that were in use before, by their names.
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
        """Return what the service made of `key`. Raises: KeyUnavailableError (refused), KeyServiceError (not reached)."""
        return await self._called(self._name, self._wrap, key, context=context, verb="wrap")

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return what the service made of `wrapped`."""
        function = self._unwrap.get(kek)
        if function is None:
            raise _unavailable(context, kek, given=self._unwrap)
        key = await self._called(kek, function, wrapped, context=context, verb="unwrap")
        if len(key) != KEY_BYTES:
            raise _unavailable(context, kek, given=self._unwrap, wrong="the service gave something else")
        return key

    async def _called(self, kek: str, function: Wrapping, data: bytes, *, context: bytes, verb: str) -> bytes:
        try:
            return await asyncio.to_thread(function, data, context)
        except (PermissionError, ValueError) as error:
            raise _unavailable(context, kek, given=self._unwrap, wrong=str(error) or "refused") from error
        except Exception as error:
            raise KeyServiceError(
                store="", service=kek, verb=verb, reason=str(error) or type(error).__name__
            ) from error


class ChangingKeys:
    """The keys of one source for what is wrapped from now on, and those of others to unwrap: moving from one to another."""

    def __init__(self, newest: KeySource, *older: KeySource) -> None:
        self._sources = (newest, *older)

    async def open(self, salt: Salt) -> KeyProvider:
        """Return the keys of every source."""
        return _Several([await source.open(salt) for source in self._sources])


class _Several:
    """Providers of which the first wraps."""

    def __init__(self, providers: Sequence[KeyProvider]) -> None:
        self._providers = providers

    @property
    def current(self) -> str:
        """Return the name of the first one's key."""
        return self._providers[0].current

    async def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return `key` wrapped by the first."""
        return await self._providers[0].wrap(key, context)

    async def unwrap(self, kek: str, wrapped: bytes, *, context: bytes) -> bytes:
        """Return the key, from whichever has `kek`."""
        refused: KeyUnavailableError | None = None
        for provider in self._providers:
            try:
                return await provider.unwrap(kek, wrapped, context=context)
            except KeyUnavailableError as error:
                refused = refused or error
        raise refused or _unavailable(context, kek, given={})


def _unavailable(context: bytes, kek: str, *, given: Mapping[str, object], wrong: str = "") -> KeyUnavailableError:
    names = ", ".join(sorted(given)) or "none"
    return KeyUnavailableError(
        store="",
        reason="",
        what=context.decode(errors="replace").rstrip(", ").replace("kipu data key 1", "The data key"),
        kek=kek,
        given=f"{names}; {wrong}" if wrong else names,
    )
