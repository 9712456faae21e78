"""What is written about the format of the data, and looked at before anything else."""

from __future__ import annotations

from typing import Final

from kipu.errors import NewerFormatError, StoreReadOnlyError, StoreUrlError
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.scripts import PROBE
from kipu.stores.valkey.server import Server

FORMAT: Final = 1
"""What this version writes. `oldest` is the oldest version that may still read and write the data as it is."""


async def meta_of(server: Server, keys: KeyNames) -> dict[str, str]:
    """Return what the data says of itself; nothing where there is none."""
    flat = await server.ask("HGETALL", keys.meta)
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


async def prepare(server: Server, keys: KeyNames) -> None:
    """Say whose the data is where nobody has yet. Raises: NewerFormatError, StoreUrlError, StoreReadOnlyError."""
    meta = await meta_of(server, keys)
    if meta:
        check(meta, server)
    denied = await server.look(PROBE, keys.probe)
    if denied:
        what, why = (one.decode() for one in denied)
        raise StoreReadOnlyError(store=server.url, reason=f"its user may not use {what} ({why})")
    if not meta:
        await server.command("HSET", keys.meta, "kind", "kipu", "format", FORMAT, "oldest", FORMAT)
        check(await meta_of(server, keys), server)


def check(meta: dict[str, str], server: Server) -> None:
    """Return where this version may work with the data. Raises: NewerFormatError, StoreUrlError."""
    if meta.get("kind") != "kipu":
        reason = f"the keys with the prefix {server.address.prefix!r} are not Kipu's; choose another with prefix="
        raise StoreUrlError(url=server.url, reason=reason)
    oldest = int(meta.get("oldest", "0"))
    if oldest > FORMAT:
        raise NewerFormatError(store=server.url, found=oldest, known=FORMAT)
