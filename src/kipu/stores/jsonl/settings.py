"""How a JSONL store is set up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Durability = Literal["fsync", "buffered", "os"]
SEGMENT_BYTES = 64 * 1024 * 1024
FORMAT = 1
# A buffering store loses at most this much of what it acknowledged when the power goes (B53).
BUFFER_EVENTS = 10
BUFFER_S = 1.0

LOSS_WINDOWS: dict[Durability, str] = {
    "fsync": "nothing",
    "buffered": f"the last {BUFFER_EVENTS} events or {BUFFER_S:g} s, whichever is less; urgent events never",
    "os": "what the operating system has not written yet, usually up to 30 s",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What `JsonlStore.open` was given, checked."""

    root: str
    url: str
    durability: Durability = "fsync"
    segment_bytes: int = SEGMENT_BYTES
    format: int = FORMAT  # what the folder says
    index_root: str = ""  # where the index is, when it is not in the folder
    writable: bool = True  # the folder may be written
    remote: str = ""  # the kind of network file system it is on
    lock_reach: str = ""  # how far locks hold there, in words

    @property
    def index_folder(self) -> str:
        """Return the folder of the index."""
        return self.index_root or self.root

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what whoever opens the store is to know of its place."""
        notes: tuple[str, ...] = ("index.sqlite is a cache: delete it and it is made anew from the logs",)
        if self.remote:
            place = f"on a network file system ({self.remote}): the index is in {self.index_folder}"
            notes += (f"{place}, and an idempotency key holds for this machine", self.lock_reach)
        elif self.index_root:
            notes += (f"the index is in {self.index_root}: whoever opens the store here names the same ?index=",)
        return notes

    @property
    def read_only(self) -> bool:
        """Return True for a folder that a newer version wrote, or that may not be written."""
        return self.format > FORMAT or not self.writable

    @property
    def syncs(self) -> bool:
        """Return True when new names and bindings are put on the medium."""
        return self.durability != "os" and not self.read_only
