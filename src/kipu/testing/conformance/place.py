"""Where a store is tried: a fresh place that can be opened again and again, also by another process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import EventStore


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a place can be asked for; what it cannot is reported as not supported, with this reason.

    `persistent`: what was kept is there when it is opened again. `shared`: several stores can be open on it at once.
    `multi_process`: also from several processes (the place must pickle). `search`: it has an index. `files`: everything it
    keeps is in files below `root`, so that they can be scanned and damaged.
    """

    persistent: bool = True
    shared: bool = True
    multi_process: bool = True
    search: bool = True
    files: bool = True
    reason: str = "this kind of store does not have it"


class Place(Protocol):
    """One place, empty at first. `open` may be called many times."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what can be asked of it."""
        ...

    @property
    def root(self) -> Path | None:
        """Return the folder below which its files are, if it has files."""
        ...

    async def open(self, *, clock: Clock, liveness: Liveness) -> EventStore:
        """Open a store here, with that clock and that knowledge of who is dead."""
        ...


PlaceMaker = Callable[[Path], Place]
"""Makes a place in an empty folder."""

_KINDS = {
    "memory": Capabilities(
        persistent=False,
        shared=False,
        multi_process=False,
        files=False,
        reason="it lives in the memory of one store object",
    ),
}


@dataclass(frozen=True)
class UrlPlace:
    """The place that a store URL names, opened the way the library opens it."""

    url: str
    root: Path | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Return what stores of this scheme can do."""
        return _KINDS.get(self.url.partition(":")[0], Capabilities(files=self.root is not None))

    async def open(self, *, clock: Clock, liveness: Liveness) -> EventStore:
        """Open the URL."""
        from kipu.wiring import open_store

        return await open_store(self.url, clock=clock, liveness=liveness)


@dataclass(frozen=True)
class FunctionPlace:
    """A place of somebody's own store: an async function `open(clock=, liveness=)` (a module's, if processes are to share it)."""

    opener: Callable[..., Awaitable[EventStore]]
    capabilities: Capabilities = field(default_factory=Capabilities)
    root: Path | None = None

    async def open(self, *, clock: Clock, liveness: Liveness) -> EventStore:
        """Call the function."""
        return await self.opener(clock=clock, liveness=liveness)
