"""What the server promises of what it acknowledged, as its settings say."""

from __future__ import annotations

from typing import NamedTuple

from kipu.errors import StoreUrlError
from kipu.stores.postgres.database import Database

_NAMES = ("synchronous_commit", "fsync", "full_page_writes", "synchronous_standby_names", "wal_writer_delay")
_SETTINGS = "SELECT " + ", ".join(f"current_setting('{name}', true)" for name in _NAMES)
_WAITS = {"on", "remote_write", "remote_apply"}  # for the standbys, where some are named


class ServerDurability(NamedTuple):
    """A level in the words of docs/howto/choose-durability.md, what a power cut may take, and what is to be known beside it."""

    level: str
    loss_window: str
    notes: tuple[str, ...] = ()


async def server_durability(database: Database) -> ServerDurability:
    """Return what the server is set to keep. A setting that it does not have counts as safe."""
    found = dict(zip(_NAMES, (await database.rows(_SETTINGS))[0], strict=True))
    commits, standbys = found["synchronous_commit"] or "on", found["synchronous_standby_names"] or ""
    torn: tuple[str, ...] = ()
    if found["full_page_writes"] == "off":
        torn = (
            "full_page_writes=off: a power cut may leave half-written pages, unless its file system keeps that from happening",
        )
    if found["fsync"] == "off":
        note = "fsync=off: a crash of its machine may take anything that was acknowledged, and the database with it"
        return ServerDurability("os", "anything, with a crash of the server's machine (fsync=off)", (note, *torn))
    if commits == "off":
        note = "synchronous_commit=off: a crash of the server may take the last moments of what was acknowledged"
        window = f"what was acknowledged within three times {found['wal_writer_delay']} (synchronous_commit=off)"
        return ServerDurability("buffered", window, (note, *torn))
    if standbys and commits in _WAITS:
        window = f"nothing, and nothing with the loss of the primary either: {standbys} has it too ({commits})"
        return ServerDurability("fsync", window, torn)
    alone = (
        f"synchronous_commit=local, so that {standbys} is not waited for" if standbys else "no standby is waited for"
    )
    return ServerDurability("fsync", f"nothing, unless the server is lost for good: {alone}", torn)


def require(wanted: str | None, found: ServerDurability, *, url: str) -> None:
    """Refuse a server that promises less than a URL asks for. Raises: StoreUrlError."""
    if wanted == "fsync" and found.level != "fsync":
        raise StoreUrlError(
            url=url,
            reason=f"its server does not keep durability=fsync. {found.notes[0]}; set it on, or leave durability out",
        )
