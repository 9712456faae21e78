"""A store's keys rotated: another key-encryption key wraps them all, or every session gets a fresh data key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kipu.errors import KeySourceError
from kipu.ports.home_path import home_path
from kipu.ports.vault import KeyVault
from kipu.security.cipher import KEY_BYTES
from kipu.security.key_file import add_key, file_keys, keep_keys, key_line, keys_in
from kipu.security.key_finder import KeyFinder
from kipu.security.key_provider import ChangingKeys, KeySource
from kipu.security.key_sources import (
    OLD_PASSPHRASE,
    PASSPHRASE,
    PassphraseKeys,
    passphrase_of,
    read_keyring,
    write_keyring,
)
from kipu.security.keys import KeyRing

Told = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Rotated:
    """What a rotation did. `source` names where the key is from now on."""

    keys: int
    current: str
    source: str
    added: bool = False  # a key was made
    dropped: int = 0  # old keys that were taken out of the file


class Rotation:
    """Rotate the keys of one vault, while its store is in use. Stopped at any point it goes on when run again.

    `new_passphrase` gives the one to come where the store's key is a passphrase.
    """

    def __init__(
        self,
        vault: KeyVault,
        finder: KeyFinder,
        *,
        named: str | None = None,
        new_passphrase: Callable[[], str] | None = None,
        told: Told | None = None,
    ) -> None:
        self._vault = vault
        self._finder = finder
        self._named = named
        self._new_passphrase = new_passphrase
        self._told = told

    async def run(self, *, to: str | None = None, drop_old: bool = False) -> Rotated:
        """Wrap every data key under a new key: of the same source, or of the one that `to` names.

        Raises: KeySourceError, KeysBusyError (another process rotates), EncryptionError; what was rewrapped stays so.
        """
        async with self._vault.rotating():
            keys, source, added = await self._keys(to)
            ring = await KeyRing.open(self._vault, keys, entropy=self._finder.entropy)
            done = await ring.rewrap_alone(told=self._told)
            await self._vault.set_settings({"source": source, "older": None})
            dropped = self._drop_old(source) if drop_old else 0
            return Rotated(done, ring.current, source, added, dropped)

    async def _keys(self, to: str | None) -> tuple[KeySource, str, bool]:
        """Return the keys to rotate with, where the newest is from, and whether it was made now."""
        remembered = await self._vault.settings()
        if remembered.get("older"):  # a move that was cut is ended first, whatever the URL still names
            source: str = remembered["source"]
            return await self._found(source), source, False
        now = self._finder.name_of(self._named, remembered)
        if now is None:
            raise KeySourceError(source="this store", reason="nobody named it: give encrypt= in the URL, or KIPU_KEY")
        if to is not None and to != now:
            return await self._moving(to, now), to, False
        keys, added = await self._renewed(now)
        return keys, now, added

    async def _found(self, named: str | None) -> KeySource:
        source = self._finder.find(named, await self._vault.settings())
        if source is None:
            raise KeySourceError(source="this store", reason="it is not there")
        return source

    async def _moving(self, to: str, now: str) -> KeySource:
        """Return the keys of both sources; from here on the vault remembers both, so that a store opens halfway too."""
        both = ChangingKeys(self._finder.open(to), await self._found(self._named))
        await KeyRing.open(self._vault, both, entropy=self._finder.entropy)
        await self._vault.set_settings({"source": to, "older": [now]})
        return both

    async def _renewed(self, text: str) -> tuple[KeySource, bool]:
        """Return the source with a key that does not wrap everything yet, made now where there is none, and whether it was."""
        kind, _, name = text.partition(":")
        if kind == "passphrase":
            return self._both_passphrases(name or PASSPHRASE), False
        source = await self._found(self._named)
        ring = await KeyRing.open(self._vault, source, entropy=self._finder.entropy)
        if set(await ring.status()) != {ring.current}:
            return source, False  # a rotation that was cut, or a newer key that stands there already
        self._add(text)
        return self._finder.open(text), True

    def _add(self, text: str) -> None:
        """Put a fresh key behind the others of a source. Raises: KeySourceError where only people can."""
        kind, _, name = text.partition(":")
        entropy = self._finder.entropy
        if kind == "file":
            add_key(home_path(name), entropy=entropy)
        elif kind == "keyring":
            write_keyring(name, f"{read_keyring(name).rstrip()}\n{key_line(entropy.random_bytes(KEY_BYTES))}")
        else:
            reason = "there is no newer key in it. Put one behind the old one, with a comma, or name another by --to"
            raise KeySourceError(source=text, reason=reason)

    def _both_passphrases(self, name: str) -> KeySource:
        old = passphrase_of(name, environment=self._finder.environment, ask=self._finder.ask)
        if name == PASSPHRASE and self._finder.environment.get(OLD_PASSPHRASE):
            return self._finder.open("passphrase")
        new = self._new_passphrase() if self._new_passphrase is not None else ""
        if not new:
            raise KeySourceError(
                source="the new passphrase", reason="KIPU_NEW_PASSPHRASE is not set, and there is no terminal to ask on"
            )
        return PassphraseKeys([old, new], entropy=self._finder.entropy)

    def _drop_old(self, text: str) -> int:
        """Take all keys but the newest out of a file or a keyring entry. Other stores under them open no more."""
        kind, _, name = text.partition(":")
        if kind == "file":
            path = home_path(name)
            kept = file_keys(path, entropy=self._finder.entropy).keys
            keep_keys(path, kept[-1:])
        elif kind == "keyring":
            kept = tuple(keys_in(read_keyring(name), source=text))
            write_keyring(name, key_line(kept[-1]))
        else:
            return 0
        return len(kept) - 1
