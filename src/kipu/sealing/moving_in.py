"""A key vault that was a file of one machine, moved to where its store keeps it now: a database, or another directory."""

from __future__ import annotations

import os
from pathlib import Path

from kipu.errors import InputError, KeySourceError, StoreInUseError
from kipu.ports.vault import KeyVault, VaultContent, WrappedKey
from kipu.security.cipher import KEY_BYTES
from kipu.security.key_finder import KeyFinder
from kipu.security.key_provider import KeyProvider
from kipu.security.key_vault import SALT, SqliteVault
from kipu.security.keys import key_context
from kipu.stores.store_files import overwrite


class VaultMove:
    """Keep in `target` all that the vault file at `path` keeps. Stopped at any point, nothing is lost and it goes on when run again.

    Where both have a key of the same session and epoch they must be the same key; to know that of two that are wrapped
    differently, the key-encryption keys are asked for.
    """

    def __init__(self, path: Path, target: KeyVault, *, finder: KeyFinder, named: str | None) -> None:
        self._path = path
        self._target = target
        self._finder = finder
        self._named = named
        self._provider: KeyProvider | None = None

    async def run(self) -> int:
        """Move, compare, and remove the file; return how many keys are new in the target.

        Raises: StoreInUseError (a process of this machine has the file open), InputError (the target is the vault of another
        store), EncryptionError (keys to compare with are wanted), StoreError. The file stands then.
        """
        refuse_open(self._path)
        vault = SqliteVault(self._path)
        try:
            content = await vault.content()
        finally:
            await vault.close()
        new = await self._take_in(content)
        await self._compare(content)
        discard(self._path, sides=("-journal", ".lock"))
        return new

    async def _take_in(self, content: VaultContent) -> int:
        if content.salt is not None and await self._target.constant(SALT, content.salt) != content.salt:
            raise InputError(reason=f"{self._target.place} is the vault of another store: its salt is another one")
        await self._compare(content, is_whole=False)
        gone, new = set(content.shredded), 0
        for session_id in content.shredded:
            await self._target.shred(session_id)
        for key in content.keys:
            known = await self._target.keys(key.session_id)
            is_gone = key.session_id in gone or (not known and await self._target.is_shredded(key.session_id))
            if not is_gone and all(each.epoch != key.epoch for each in known):
                await self._target.add(key)
                new += 1
        for session_id, digest, place in content.blobs:
            if session_id not in gone and not await self._target.is_shredded(session_id):
                await self._target.place_blob(session_id, digest, place=place)
        known_settings = await self._target.settings()
        await self._target.set_settings({k: v for k, v in content.settings.items() if k not in known_settings})
        return new

    async def _compare(self, content: VaultContent, *, is_whole: bool = True) -> None:
        """Raise where a key is another one in the target or, with `is_whole`, is not there though its session was not erased."""
        for key in content.keys:
            there = [each for each in await self._target.keys(key.session_id) if each.epoch == key.epoch]
            if there and there[0] != key and await self._plain(there[0]) != await self._plain(key):
                raise InputError(
                    reason=f"{self._target.place} has another key of {key.session_id or 'its index'}: it is another store's vault"
                )
            if is_whole and not there and not await self._target.is_shredded(key.session_id):
                raise InputError(
                    reason=f"the key of {key.session_id} did not arrive in {self._target.place}; run it again"
                )

    async def _plain(self, key: WrappedKey) -> bytes:
        if self._provider is None:
            source = self._finder.find(self._named, await self._target.settings())
            if source is None:
                raise KeySourceError(
                    source="this store", reason="nobody named it: give encrypt= in the URL, or KIPU_KEY"
                )

            async def salt() -> bytes:
                return await self._target.constant(SALT, os.urandom(KEY_BYTES // 2))

            self._provider = await source.open(salt)
        return await self._provider.unwrap(key.kek, key.wrapped, context=key_context(key.session_id, key.epoch))


def refuse_open(path: Path) -> None:
    """Raise StoreInUseError where another process of this machine has the file open, as far as the system tells."""
    found = path.stat()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            for each in (process / "fd").iterdir():
                opened = each.stat()
                if (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino):
                    raise StoreInUseError(store=str(path))
        except OSError:  # it has ended, or is another user's
            continue


def discard(path: Path, *, sides: tuple[str, ...]) -> None:
    """Overwrite and remove a file that was moved, and what stands beside it."""
    for each in (path, *(path.with_name(path.name + side) for side in sides)):
        if each.exists():
            overwrite(each)
            each.unlink()
