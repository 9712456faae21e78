"""A store at a Valkey server looked at: what it is, and what its server is set to lose. Nothing is changed."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kipu.stores.valkey.address import Address
from kipu.stores.valkey.format import FORMAT, meta_of
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.server import Server


@dataclass(frozen=True, slots=True)
class KeyState:
    """What is under a prefix, and how the server keeps it."""

    store: str
    server: str
    format: int | None
    oldest: int | None
    known: int
    durability: str
    loss_window: str
    notes: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Return True where this release may read and write all of it."""
        return self.oldest is not None and self.oldest <= self.known


async def check(url: str) -> KeyState:
    """Return what is there. Raises: StoreUnavailableError; ConfigurationError where the server is not to be trusted with it."""
    server = Server(Address.parse(url, environment=os.environ))
    try:
        meta = await meta_of(server, KeyNames(server.address.prefix))
    finally:
        await server.close()
    settings, notes = server.settings, []
    if settings.is_replica:
        notes.append("this server is a replica: it can only be read")
    if settings.is_cluster:
        notes.append("this is a node of a cluster: the store is in one slot of it, on one node")
    if settings.durability not in {"fsync", "unknown"}:
        notes.append("a crash of the server may take what was acknowledged: CONFIG SET appendfsync always keeps it")
    is_ours = meta.get("kind") == "kipu"
    return KeyState(
        server.url,
        settings.version,
        int(meta["format"]) if is_ours else None,
        int(meta["oldest"]) if is_ours else None,
        FORMAT,
        settings.durability,
        settings.loss_window,
        tuple(notes),
    )
