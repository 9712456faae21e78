"""`encrypt_store` and `decrypt_store`: what to open on either side of a conversion, from a store's URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from kipu.errors import InputError
from kipu.manager.copying import CopyProgress
from kipu.ports.store import EventStore
from kipu.sealing.conversion import Beside, Conversion, Converted
from kipu.sealing.conversion_files import vault_of
from kipu.sealing.opening import open_sealed, remembered_settings
from kipu.security.key_finder import KeyFinder
from kipu.security.key_provider import KeySource
from kipu.security.key_vault import VaultFile
from kipu.security.keys import KeyRing, keys_missing
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.sealed_mark import is_sealed

OpenPlain = Callable[[Path], Awaitable[EventStore]]
Told = Callable[[str, CopyProgress], None]


class StorePlace:
    """A store on disk that can be converted: its kind, its path, and how one of its kind is opened without keys.

    `beside` converts what else stands beside it; `archives_beside` says that its archives do.
    """

    def __init__(
        self,
        url: str,
        kind: str,
        *,
        path: Path,
        open_plain: OpenPlain,
        beside: Beside | None = None,
        archives_beside: bool = True,
    ) -> None:
        if kind not in {"sqlite", "jsonl"}:
            raise InputError(
                reason=f"a {kind} store has no files to convert; copy it into an encrypted one by `kipu copy`"
            )
        self.url = url
        self.kind = kind
        self.path = path
        self.open_plain = open_plain
        self.beside = beside
        self.archives_beside = archives_beside


async def encrypt_store(
    place: StorePlace,
    keys: KeySource,
    *,
    source: str | None,
    owner: str,
    chain: bool = False,
    fields: Sequence[str] = (),
    keep: bool = False,
    told: Told | None = None,
) -> Converted:
    """Encrypt the store in place. `source` is the text that names `keys`, for its vault to remember.

    Raises: InputError (it is encrypted), and what `Conversion.run` does.
    """
    settings = {"chain": "on"} if chain else {}
    if fields:
        settings["fields"] = ",".join(fields)

    async def open_old(path: Path) -> EventStore:
        store = await place.open_plain(path)
        if await is_sealed(store):
            await store.close()
            raise keys_missing(vault_of(path), sealed=True, store=place.url)
        return store

    async def open_new(path: Path) -> EventStore:
        store = await _sealed(place, path, keys=keys, settings=settings)
        if source is not None:
            await ring_of(store).vault.set_settings({"source": source})
        return store

    work = Conversion(
        place.kind,
        place.path,
        url=place.url,
        encrypt=True,
        open_old=open_old,
        open_new=open_new,
        owner=owner,
        beside=place.beside,
        archives_beside=place.archives_beside,
    )
    return await work.run(keep=keep, progress=told)


async def decrypt_store(
    place: StorePlace,
    finder: KeyFinder,
    *,
    named: str | None,
    owner: str,
    keep: bool = False,
    told: Told | None = None,
) -> Converted:
    """Make the store a plain one again.

    Raises: InputError (it is not encrypted), EncryptionError (not with this key), and what `Conversion.run` does.
    """

    async def open_old(path: Path) -> EventStore:
        keys = finder.find(named, await remembered_settings(VaultFile(vault_of(path))))
        return await _sealed(place, path, keys=keys, settings={})

    work = Conversion(
        place.kind,
        place.path,
        url=place.url,
        encrypt=False,
        open_old=open_old,
        open_new=place.open_plain,
        owner=owner,
        beside=place.beside,
        archives_beside=place.archives_beside,
    )
    return await work.run(keep=keep, progress=told)


def ring_of(store: EventStore) -> KeyRing:
    """Return the keys of an encrypted store. Raises: InputError where it is none."""
    keys = getattr(store, "store_keys", None)
    if not isinstance(keys, KeyRing):
        raise InputError(reason=f"{store.describe().url} is not encrypted")
    return keys


async def _sealed(place: StorePlace, path: Path, *, keys: KeySource | None, settings: dict[str, str]) -> EncryptedStore:
    return await open_sealed(
        partial(place.open_plain, path),
        url=place.url,
        settings=settings,
        vault=VaultFile(vault_of(path)),
        keys=keys,
        find_keys=None,
    )
