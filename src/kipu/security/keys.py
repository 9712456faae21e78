"""The keys of one store: data keys made, opened, rewrapped and shredded (docs/formats/encryption.md)."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from kipu.errors import DataKeyMissingError, KeysMissingError, SealBrokenError, SessionErasedError
from kipu.ports.clock import Entropy
from kipu.security.cipher import KEY_BYTES, AesGcmCipher, NameCipher
from kipu.security.key_provider import KeyProvider, KeySource
from kipu.security.key_vault import KeyVault, WrappedKey

_INDEX = ""  # no session has this id: the key of terms and names stands with the data keys, and is rewrapped with them
_SALT_BYTES = 16
_CIPHERS_KEPT = 4096


class KeyRing:
    """Give every session its cipher (`ports.cipher.StoreKeys`), from one vault and one provider."""

    def __init__(self, vault: KeyVault, provider: KeyProvider, *, names: NameCipher, entropy: Entropy) -> None:
        self._vault = vault
        self._provider = provider
        self._names = names
        self._entropy = entropy
        self._ciphers: OrderedDict[str, AesGcmCipher] = OrderedDict()
        self.term = names.term
        self.blind = names.blind
        self.hide = names.hide
        self.reveal = names.reveal

    @classmethod
    async def open(cls, vault: KeyVault, source: KeySource, *, entropy: Entropy) -> KeyRing:
        """Return the keys in the vault; an empty vault gets its index key.

        Raises: KeyUnavailableError (a wrong or rotated-away key), KeySourceError, StoreError. Nothing was changed then.
        """
        salted = await vault.constant("salt", entropy.random_bytes(_SALT_BYTES))

        async def salt() -> bytes:
            return salted

        provider = await source.open(salt)
        found = vault.keys(_INDEX)
        key = found[0] if found else await _made(vault, provider, (_INDEX, 1), entropy=entropy)
        index_key = await _unwrapped(provider, key)
        return cls(vault, provider, names=NameCipher(index_key), entropy=entropy)

    async def begin(self, session_id: str) -> AesGcmCipher:
        """Return the cipher of a session that begins; its key is durable before."""
        if not self._vault.keys(session_id):
            if self._vault.is_shredded(session_id):
                raise SessionErasedError(session_id=session_id, reason="its key was destroyed")
            await _made(self._vault, self._provider, (session_id, 1), entropy=self._entropy)
        return await self.cipher(session_id, fresh=True)

    async def cipher(self, session_id: str, *, fresh: bool = False) -> AesGcmCipher:
        """Return the session's cipher, from memory where it was opened before."""
        known = None if fresh else self._ciphers.get(session_id)
        if known is not None:
            return known
        wrapped = self._vault.keys(session_id)
        if not wrapped:
            gone = "it was destroyed" if self._vault.is_shredded(session_id) else "the vault has none"
            self._ciphers.pop(session_id, None)
            raise DataKeyMissingError(store=self._vault.place, session_id=session_id, reason=gone)
        keys = {key.epoch: await _unwrapped(self._provider, key) for key in wrapped}
        cipher = AesGcmCipher(session_id, keys, entropy=self._entropy)
        self._ciphers[session_id] = cipher
        if len(self._ciphers) > _CIPHERS_KEPT:
            self._ciphers.popitem(last=False)
        return cipher

    async def new_epoch(self, session_id: str) -> int:
        """Make a fresh data key for what the session seals from now on, and return its epoch. Others learn of it when they reopen."""
        newest = max((key.epoch for key in self._vault.keys(session_id)), default=0)
        if not newest:
            raise DataKeyMissingError(store=self._vault.place, session_id=session_id, reason="the vault has none")
        await _made(self._vault, self._provider, (session_id, newest + 1), entropy=self._entropy)
        await self.cipher(session_id, fresh=True)
        return newest + 1

    async def shred(self, session_id: str) -> None:
        """Destroy the session's keys on the medium and here."""
        await self._vault.shred(session_id)
        self._ciphers.pop(session_id, None)

    async def rewrap(self, *, batch: int = 100) -> int:
        """Wrap every key under the provider's current one, while the store is in use, and return how many were.

        Killed in the middle it goes on when called again; until it is done, both keys must be given.
        Raises: KeyUnavailableError (an old key is not given; what was rewrapped stays so).
        """
        done, after, current = 0, ("", -1), self._provider.current
        while page := self._vault.not_under(current, after=after, limit=batch):
            pairs = []
            for old in page:
                plain = await _unwrapped(self._provider, old)
                wrapped = await self._provider.wrap(plain, _context(old.session_id, old.epoch))
                pairs.append((old, old._replace(kek=current, wrapped=wrapped)))
            done += await self._vault.rewrap(pairs)
            after = page[-1][:2]
        return done

    def status(self) -> dict[str, int]:
        """Return how many keys each key-encryption key wraps; one name alone means that a rotation is done."""
        return self._vault.counts()

    async def blob_places(self, session_id: str) -> dict[str, str]:
        """Return where each blob is."""
        return {self.reveal(digest): place for digest, place in self._vault.blob_places(session_id).items()}

    async def blob_place(self, session_id: str, digest: str) -> str | None:
        """Return where one blob is."""
        return self._vault.blob_place(session_id, self.hide(digest))

    async def place_blob(self, session_id: str, digest: str, *, place: str) -> None:
        """Remember where a blob is, without telling its digest to the medium."""
        await self._vault.place_blob(session_id, self.hide(digest), place=place)

    async def close(self) -> None:
        """Forget the keys and close the vault."""
        self._ciphers.clear()
        await self._vault.close()


async def open_keys(path: Path | None, source: KeySource, *, entropy: Entropy, holds_sessions: bool) -> KeyRing:
    """Return the keys in the vault at `path` (None: in memory only), made there if the store beside it is empty.

    Raises: KeysMissingError (sessions without a vault), KeyUnavailableError, KeySourceError, StoreError; nothing was changed.
    """
    vault = _vault(path, holds_sessions=holds_sessions)
    try:
        if holds_sessions and not vault.keys(_INDEX):
            raise KeysMissingError(store="", reason="", vault=vault.place)
        return await KeyRing.open(vault, source, entropy=entropy)
    except BaseException:
        await vault.close()
        raise


def _vault(path: Path | None, *, holds_sessions: bool) -> KeyVault:
    """Return the vault; none is made beside a store that holds sessions already."""
    if holds_sessions and (path is None or not path.exists()):
        raise KeysMissingError(store="", reason="", vault=str(path))
    return KeyVault(path)


async def _made(vault: KeyVault, provider: KeyProvider, place: tuple[str, int], *, entropy: Entropy) -> WrappedKey:
    wrapped = await provider.wrap(entropy.random_bytes(KEY_BYTES), _context(*place))
    return await vault.add(WrappedKey(*place, provider.current, wrapped))


async def _unwrapped(provider: KeyProvider, key: WrappedKey) -> bytes:
    plain = await provider.unwrap(key.kek, key.wrapped, context=_context(key.session_id, key.epoch))
    if len(plain) != KEY_BYTES:
        raise SealBrokenError(store="", reason="a data key is cut", session_id=key.session_id, where="its data key")
    return plain


def _context(session_id: str, epoch: int) -> bytes:
    return f"kipu data key 1 of {session_id or 'the index'}, epoch {epoch}, ".encode()
