"""An encrypted store opened: its vault, its key, and the wrappers that the vault says it has."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kipu.errors import KipuError, StoreReadOnlyError, StoreSealedError, StoreUnavailableError
from kipu.ports.store import EventStore
from kipu.ports.vault import VaultPlace
from kipu.security.key_finder import KeyFinder
from kipu.security.key_provider import KeySource
from kipu.security.keys import KeyRing, open_keys
from kipu.stores.chained import ChainedStore
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.host import SystemEntropy
from kipu.stores.sealed_mark import is_chained, newest

T = TypeVar("T")


async def open_sealed(
    open_plain: Callable[[], Awaitable[EventStore]],
    *,
    url: str,
    settings: Mapping[str, str],
    vault: VaultPlace,
    keys: KeySource | None,
    find_keys: KeyFinder | None,
) -> EncryptedStore:
    """Return the encrypted store, made if it is not there. `settings` are those of its URL: encrypt, chain, fields.

    Raises: EncryptionError, KeySourceError, StoreError; nothing was changed then.
    """
    remembered = await remembered_settings(vault)
    find_again = None
    if keys is None:
        finder = find_keys or KeyFinder(os.environ, entropy=SystemEntropy())
        find_again = partial(finder.find, settings.get("encrypt"))
        try:
            keys = find_again(remembered)
        except KipuError as error:
            error.add_note(f"It is the key of {url}.")
            raise
    if keys is None:
        raise StoreSealedError(store=url, vault=vault.shown, source=remembered.get("source") or "?encrypt= or KIPU_KEY")
    inner = await open_plain()
    try:
        holds = await _answer(newest(inner), untold=True) is not None
        ring = await open_keys(vault, keys, entropy=SystemEntropy(), holds_sessions=holds, find_again=find_again)
        try:
            return await _wrapped(inner, ring, settings=settings, remembered=remembered)
        except BaseException:
            await ring.close()
            raise
    except BaseException:
        await inner.close()
        raise


async def _wrapped(
    inner: EventStore, ring: KeyRing, *, settings: Mapping[str, str], remembered: Mapping[str, Any]
) -> EncryptedStore:
    """Return the wrappers that the store was begun with, whatever this URL leaves out; what it adds is remembered."""
    told = settings.get("chain") == "on" or remembered.get("chain")
    chained = told or await _answer(is_chained(inner), untold=False)
    named = settings["fields"].split(",") if "fields" in settings else remembered.get("fields")
    changes = {"chain": True if chained else None, "fields": sorted(named) if named else None}
    if any(remembered.get(name) != value for name, value in changes.items()):
        with suppress(StoreReadOnlyError):  # whoever may only read finds the same out again
            await ring.vault.set_settings(changes)
    if chained:
        inner = ChainedStore(inner, ring)
    return EncryptedStore(inner, ring, fields=frozenset(named) if named else None)


async def _answer(asked: Awaitable[T], *, untold: T | bool) -> T | bool:
    """Return what a store says, or `untold` where it cannot be asked now: a pair is opened without its primary, too.

    Then it is taken for one that holds sessions, so that its vault has to be there, and to be what that remembers.
    """
    try:
        return await asked
    except StoreUnavailableError:
        return untold


async def remembered_settings(place: VaultPlace) -> dict[str, Any]:
    """Return what a vault remembers; nothing where there is none. Raises: StoreError (it cannot be read)."""
    if not await place.is_there():
        return {}
    opened = await place.open()
    try:
        return await opened.settings()
    finally:
        await opened.close()
