"""The keys of one store: data keys made, opened, rewrapped and shredded (docs/formats/encryption.md)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from kipu.errors import (
    DataKeyDestroyedError,
    DataKeyMissingError,
    KeyRetiredError,
    KeysMissingError,
    KeySourceError,
    KeyUnavailableError,
    SealBrokenError,
    SessionErasedError,
)
from kipu.ports.clock import Entropy
from kipu.ports.vault import KeyVault, VaultPlace, WrappedKey
from kipu.security.cipher import KEY_BYTES, AesGcmCipher, NameCipher
from kipu.security.key_provider import KeyProvider, KeySource, Salt

INDEX = ""  # no session has this id: the key of terms and names stands with the data keys, and is rewrapped with them
_SALT_BYTES = 16
_CIPHERS_KEPT = 4096
_LOOK_EVERY_S = 1.0
FindAgain = Callable[[Mapping[str, Any]], KeySource | None]


class _Opened:
    """A cipher, of which epochs, and at which state of the vault that was last looked at."""

    __slots__ = ("cipher", "epochs", "version")

    def __init__(self, cipher: AesGcmCipher, *, epochs: list[int], version: int) -> None:
        self.cipher = cipher
        self.epochs = epochs
        self.version = version


class KeyRing:
    """Give every session its cipher (`ports.cipher.StoreKeys`), from one vault and one source of keys.

    What another process did to the keys (a new epoch, an erasure, a rotation) is known here a second later at most.
    """

    def __init__(
        self,
        vault: KeyVault,
        source: KeySource,
        *,
        provider: KeyProvider,
        names: NameCipher,
        entropy: Entropy,
        monotonic: Callable[[], float] = time.monotonic,
        find_again: FindAgain | None = None,
    ) -> None:
        self.vault = vault
        self._source = source
        self._provider = provider
        self._entropy = entropy
        self._monotonic = monotonic
        self._find_again = find_again
        self._found_by: list[Any] | None = None
        self._look_at_s = 0.0
        self._version = 0
        self._ciphers: OrderedDict[str, _Opened] = OrderedDict()
        self.term = names.term
        self.blind = names.blind
        self.hide = names.hide
        self.reveal = names.reveal

    @classmethod
    async def open(
        cls,
        vault: KeyVault,
        source: KeySource,
        *,
        entropy: Entropy,
        monotonic: Callable[[], float] = time.monotonic,
        find_again: FindAgain | None = None,
    ) -> KeyRing:
        """Return the keys in the vault; an empty vault gets its index key.

        `find_again` gives the source that the vault's settings name now: another machine may have moved the store to another.
        Raises: KeyUnavailableError (a wrong or rotated-away key), KeySourceError, StoreError. Nothing was changed then.
        """
        provider = await source.open(_salt_of(vault, entropy))
        found = await vault.keys(INDEX)
        key = found[0] if found else await _made(vault, provider, (INDEX, 1), entropy=entropy)
        index_key = await _unwrapped(provider, key)
        names = NameCipher(index_key)
        ring = cls(
            vault, source, provider=provider, names=names, entropy=entropy, monotonic=monotonic, find_again=find_again
        )
        ring._found_by = _naming(await vault.settings())
        return ring

    async def begin(self, session_id: str) -> AesGcmCipher:
        """Return the cipher of a session that begins; its key is durable before."""
        if not await self.vault.keys(session_id):
            if await self.vault.is_shredded(session_id):
                raise SessionErasedError(session_id=session_id, reason="its key was destroyed")
            await self._make(session_id, 1)
        return await self.cipher(session_id, fresh=True)

    def known(self, session_id: str) -> AesGcmCipher | None:
        """Return the session's cipher from memory, None where it was not opened or its keys may have changed since."""
        found = self._ciphers.get(session_id)
        is_known = found is not None and found.version == self._version and self._monotonic() < self._look_at_s
        return found.cipher if found is not None and is_known else None

    async def cipher(self, session_id: str, *, fresh: bool = False) -> AesGcmCipher:
        """Return the session's cipher, from memory where it was opened before and its keys are the same."""
        version = await self._seen_version()
        known = self._ciphers.get(session_id)
        if known is not None and not fresh and known.version == version:
            return known.cipher
        wrapped = await self.vault.keys(session_id)
        if not wrapped:
            is_destroyed = await self.vault.is_shredded(session_id)
            self._ciphers.pop(session_id, None)
            if is_destroyed:
                raise DataKeyDestroyedError(store=self.vault.place, session_id=session_id)
            raise DataKeyMissingError(store=self.vault.place, session_id=session_id, reason="the vault has none")
        epochs = [key.epoch for key in wrapped]
        if known is not None and known.epochs == epochs:
            known.version = version
            return known.cipher
        keys = {key.epoch: await self._unwrap(key) for key in wrapped}
        cipher = AesGcmCipher(session_id, keys, entropy=self._entropy)
        self._ciphers[session_id] = _Opened(cipher, epochs=epochs, version=version)
        if len(self._ciphers) > _CIPHERS_KEPT:
            self._ciphers.popitem(last=False)
        return cipher

    async def _seen_version(self) -> int:
        """Return the vault's version as it was at most a second ago; while somebody writes to it, the one before."""
        now_s = self._monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            try:
                self._version = await self.vault.version()
            except BaseException:
                self._look_at_s = 0.0  # nothing was seen
                raise
        return self._version

    async def _unwrap(self, key: WrappedKey) -> bytes:
        """Return a data key; where it is under a key that is not known here the source is asked anew: it may have been rotated."""
        try:
            return await _unwrapped(self._provider, key)
        except KeyUnavailableError:
            if not await self._learn():
                raise
            return await _unwrapped(self._provider, key)

    async def _make(self, session_id: str, epoch: int) -> None:
        try:
            await _made(self.vault, self._provider, (session_id, epoch), entropy=self._entropy)
        except KeyRetiredError:
            before = self._provider.current
            if not await self._learn() or self._provider.current == before:
                raise
            await _made(self.vault, self._provider, (session_id, epoch), entropy=self._entropy)

    async def _learn(self) -> bool:
        """Read the keys anew from where they come; return whether that could give others."""
        try:
            await self._ask_again()
            provider = await self._source.open(_salt_of(self.vault, self._entropy))
        except KeySourceError:
            return False
        if provider is self._provider:
            return False
        self._provider = provider
        return True

    async def _ask_again(self) -> None:
        """Take the source that the vault names now, where that is another one than before."""
        settings = await self.vault.settings()
        if self._find_again is not None and _naming(settings) != self._found_by:
            self._source = self._find_again(settings) or self._source
            self._found_by = _naming(settings)

    async def new_epoch(self, session_id: str) -> int:
        """Make a fresh data key for what the session seals from now on, and return its epoch."""
        newest = max([key.epoch for key in await self.vault.keys(session_id)], default=0)
        if not newest:
            raise DataKeyMissingError(store=self.vault.place, session_id=session_id, reason="the vault has none")
        await self._make(session_id, newest + 1)
        await self.cipher(session_id, fresh=True)
        return newest + 1

    async def new_epochs(self, told: Callable[[int], None] | None = None) -> int:
        """Make a fresh data key for every session and return for how many; killed in the middle, some have theirs."""
        done, after = 0, INDEX
        while page := await self.vault.sessions(after=after, limit=100):
            for session_id, newest in page:
                await self._make(session_id, newest + 1)
                done += 1
            if told is not None:
                told(done)
            after = page[-1][0]
        self._ciphers.clear()
        return done

    async def shred(self, session_id: str) -> None:
        """Destroy the session's keys on the medium and here."""
        await self.vault.shred(session_id)
        self._ciphers.pop(session_id, None)

    async def rewrap(self, *, batch: int = 100, told: Callable[[int], None] | None = None) -> int:
        """Wrap every key under the provider's current one, while the store is in use, and return how many were.

        From its beginning no process wraps anything under another key. Killed in the middle it goes on when called again;
        until it is done, both keys must be given.
        Raises: KeysBusyError (another rotation runs), KeyUnavailableError (an old key is not given; what was rewrapped stays so).
        """
        async with self.vault.rotating():
            return await self.rewrap_alone(batch=batch, told=told)

    async def rewrap_alone(self, *, batch: int = 100, told: Callable[[int], None] | None = None) -> int:
        """Do what `rewrap` does, for a caller that is within the vault's `rotating` already."""
        current = self._provider.current
        await self.vault.retire(current)
        done, after, refused = 0, ("", -1), None
        while page := await self.vault.not_under(current, after=after, limit=batch):
            pairs = []
            for old in page:
                try:
                    pairs.append((old, await self._rewrapped(old)))
                except KeyUnavailableError as error:  # the others are not to wait for it
                    refused = refused or error
            done += await self.vault.rewrap(pairs)
            after = page[-1][:2]
            if told is not None:
                told(done)
        if refused is not None:
            raise refused
        return done

    async def _rewrapped(self, old: WrappedKey) -> WrappedKey:
        plain = await _unwrapped(self._provider, old)
        wrapped = await self._provider.wrap(plain, key_context(old.session_id, old.epoch))
        return old._replace(kek=self._provider.current, wrapped=wrapped)

    @property
    def current(self) -> str:
        """Return the name of the key that wraps from now on."""
        return self._provider.current

    async def status(self) -> dict[str, int]:
        """Return how many keys each key-encryption key wraps; one name alone means that a rotation is done."""
        return await self.vault.counts()

    async def blob_places(self, session_id: str) -> dict[str, str]:
        """Return where each blob is."""
        places = await self.vault.blob_places(session_id)
        return {self.reveal(digest): place for digest, place in places.items()}

    async def blob_place(self, session_id: str, digest: str) -> str | None:
        """Return where one blob is."""
        return await self.vault.blob_place(session_id, self.hide(digest))

    async def place_blob(self, session_id: str, digest: str, *, place: str, instead_of: str | None = None) -> None:
        """Remember where a blob is, without telling its digest to the medium."""
        await self.vault.place_blob(session_id, self.hide(digest), place=place, instead_of=instead_of)

    async def close(self) -> None:
        """Forget the keys and close the vault."""
        self._ciphers.clear()
        await self.vault.close()


async def open_keys(
    place: VaultPlace,
    source: KeySource,
    *,
    entropy: Entropy,
    holds_sessions: bool,
    find_again: FindAgain | None = None,
) -> KeyRing:
    """Return the keys in the vault at `place`, made there if the store beside it is empty.

    Raises: KeysMissingError (sessions without a vault), KeyUnavailableError, KeySourceError, StoreError; nothing was changed.
    """
    if holds_sessions and not await place.is_there():  # none is made beside a store that holds sessions already
        raise keys_missing(place.shown)
    vault = await place.open()
    try:
        if holds_sessions and not await vault.keys(INDEX):
            raise keys_missing(vault.place)
        return await KeyRing.open(vault, source, entropy=entropy, find_again=find_again)
    except BaseException:
        await vault.close()
        raise


def keys_missing(vault: object, *, sealed: bool = False, store: str = "") -> KeysMissingError:
    """Return the error for a store that holds sessions beside a vault that has no keys for them."""
    if sealed:
        holds, advice = (
            "holds encrypted sessions",
            "Put its key vault back, from where the store came or from a backup.",
        )
    else:
        holds = "holds sessions"
        advice = "Put its key vault back; if it was never encrypted, leave encrypt= out, or run `kipu encrypt`."
    return KeysMissingError(store=store, reason="", vault=vault, holds=holds, advice=advice)


def _naming(settings: Mapping[str, Any]) -> list[Any]:
    return [settings.get("source"), settings.get("older")]


def _salt_of(vault: KeyVault, entropy: Entropy) -> Salt:
    async def salt() -> bytes:
        return await vault.constant("salt", entropy.random_bytes(_SALT_BYTES))

    return salt


async def _made(vault: KeyVault, provider: KeyProvider, place: tuple[str, int], *, entropy: Entropy) -> WrappedKey:
    wrapped = await provider.wrap(entropy.random_bytes(KEY_BYTES), key_context(*place))
    return await vault.add(WrappedKey(*place, provider.current, wrapped))


async def _unwrapped(provider: KeyProvider, key: WrappedKey) -> bytes:
    plain = await provider.unwrap(key.kek, key.wrapped, context=key_context(key.session_id, key.epoch))
    if len(plain) != KEY_BYTES:
        raise SealBrokenError(store="", reason="a data key is cut", session_id=key.session_id, where="its data key")
    return plain


def key_context(session_id: str, epoch: int) -> bytes:
    """Return what a data key is wrapped with, so that it opens in its own place only."""
    return f"kipu data key 1 of {session_id or 'the index'}, epoch {epoch}, ".encode()
