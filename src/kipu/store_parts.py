"""What belongs to a store beside its sessions, and where it is: its key vault, its memory, its files. Deferred imports."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

from kipu.errors import InputError, LocalRemainsError, MissingExtraError
from kipu.ports.store import EventStore
from kipu.store_url import MEMORY, VAULT, StoreUrl, memory_path, remains, vault_path
from kipu.stores.wrapper import innermost

if TYPE_CHECKING:
    from kipu.ports.cipher import StoreKeys
    from kipu.ports.memory import MemoryStore
    from kipu.ports.vault import VaultPlace
    from kipu.security.key_finder import KeyFinder
    from kipu.stores.postgres.database import Database


async def has_vault(parsed: StoreUrl, *, over: EventStore | None) -> bool:
    """Return whether the store has a key vault, that is: whether it is encrypted."""
    path = vault_path(parsed)
    if path is not None or parsed.kind == "memory":
        return path is not None and path.exists()
    return await vault_place(parsed, over=over).is_there()


def vault_place(parsed: StoreUrl, *, over: EventStore | None = None) -> VaultPlace:
    """Return where the key vault of a store is: a file beside it, its own database, or what `vault=` names.

    It is asked over the connections of the store `over` where that is given and its database has the vault.
    """
    path = vault_path(parsed)
    if path is not None or parsed.kind == "memory":
        from kipu.security.key_vault import VaultFile

        return VaultFile(path)
    try:
        from kipu.stores.postgres.vault_tables import VaultTables
    except ImportError as error:
        raise MissingExtraError(extra="postgres", feature="a PostgreSQL store", package="psycopg") from error
    if "vault" in parsed.settings:
        return VaultTables(parsed.settings["vault"], is_apart=True)
    return VaultTables(parsed.text, over=None if over is None else database_of(over))


def database_of(store: EventStore) -> Database:
    """Return the database of a PostgreSQL store. Raises: InputError where it is none."""
    from kipu.stores.postgres.store import PostgresStore

    kept = innermost(store)
    if not isinstance(kept, PostgresStore):
        raise InputError(reason=f"{store.describe().url} is not in a database")
    return kept.database


def refuse_remains(parsed: StoreUrl, what: str = VAULT) -> None:
    """Raise LocalRemainsError where this machine still has what the store's database keeps now, so that nothing is left behind."""
    path = remains(parsed).get(what)
    if path is not None:
        raise LocalRemainsError(store=shown_url(parsed), what=what, path=path)


async def move_vault_in(parsed: StoreUrl, finder: KeyFinder) -> int | None:
    """Move the key vault that an older release kept on this machine to where it is kept now; None where there is none.

    Return how many keys are new there. Raises: see `VaultMove.run`; the file stands then.
    """
    path = remains(parsed).get(VAULT)
    if path is None:
        return None
    from kipu.sealing.moving_in import VaultMove

    target = await vault_place(parsed).open()
    try:
        return await VaultMove(path, target, finder=finder, named=parsed.settings.get("encrypt")).run()
    finally:
        await target.close()


async def move_memory_in(parsed: StoreUrl, store: EventStore) -> int | None:
    """Take the memory that an older release kept on this machine into the store's; None where there is none.

    Return how many facts were new. Raises: StoreInUseError, StoreError; the file stands then.
    """
    path = remains(parsed).get(MEMORY)
    if path is None:
        return None
    from kipu.memory.moving import merge_memory
    from kipu.memory.opening import open_memory_store
    from kipu.sealing.moving_in import discard, refuse_open

    refuse_open(path)
    source, target = open_memory_store(path, keys=keys_of(store)), _server_memory(store)
    try:
        done = await merge_memory(source, target)
    finally:
        await source.close()
        await target.close()
    discard(path, sides=("-journal",))
    return done


def local_notes(parsed: StoreUrl, *, archive: str | None = None) -> tuple[str, ...]:
    """Return what of a store on a server is on this machine only, or has to be reached from every machine, for people to know."""
    if not parsed.is_on_server:
        return ()
    notes = [
        f"{what} of an older release is still here, in {path}: run `kipu store migrate`"
        for what, path in remains(parsed).items()
    ]
    if not parsed.keeps_its_own:
        notes.append(
            f"key vault and memory of a {parsed.kind} store are files of this machine: {parsed.path}.keys and .memory"
        )
    vault = vault_path(parsed)
    if vault is not None and "vault" in parsed.settings:
        notes.append(f"the key vault is in {vault.parent}: every machine has to reach this directory")
    named = parsed.settings.get("archive") or archive
    if not named:
        notes.append("no place for archives is named: archive= is one that every machine reaches")
    elif "://" not in named or named.startswith("file:"):
        notes.append(f"archives are in {named}: every machine has to reach this directory")
    return tuple(notes)


def shown_url(parsed: StoreUrl) -> str:
    """Return a store's URL for people: without a password."""
    if parsed.kind == "valkey":
        from kipu.stores.valkey.address import Address as ValkeyAddress

        return ValkeyAddress.parse(parsed.text).shown
    if parsed.kind != "postgresql":
        return parsed.text
    from kipu.stores.postgres.address import Address

    return Address.parse(parsed.text).shown


def memory_of(url: str, store: EventStore) -> MemoryStore:
    """Return what keeps the memory of the store at `url`: sealed with the store's keys where it is encrypted."""
    parsed = StoreUrl.parse(url)
    refuse_remains(parsed, MEMORY)
    if parsed.keeps_its_own:
        return _server_memory(store)
    from kipu.memory.opening import open_memory_store

    return open_memory_store(memory_path(parsed), keys=keys_of(store))


def _server_memory(store: EventStore) -> MemoryStore:
    from kipu.memory.postgres_memory import PostgresMemory
    from kipu.memory.sealed_memory import SealedMemory

    keys = keys_of(store)
    kept = innermost(store)
    memory = PostgresMemory(
        database_of(store), is_sealed=keys is not None, may_write=lambda: not kept.describe().read_only
    )
    return memory if keys is None else SealedMemory(memory, keys)


def keys_of(store: EventStore) -> StoreKeys | None:
    """Return the keys of an encrypted store, None for a plain one."""
    from kipu.stores.encrypted import EncryptedStore
    from kipu.stores.wrapper import WrappedStore

    while isinstance(store, WrappedStore) and not isinstance(store, EncryptedStore):
        store = store.inner
    return store.store_keys if isinstance(store, EncryptedStore) else None


def files_of(parsed: StoreUrl) -> list[Path]:
    """Return everything that belongs to a store: its file or folder, and what stands beside it under its name."""
    if parsed.kind == "memory":
        return []
    found = sorted(parsed.path.parent.glob(f"{glob.escape(parsed.path.name)}*"))
    fallback = parsed.settings.get("fallback")
    return [*found, *(files_of(StoreUrl.parse(fallback)) if fallback else [])]
