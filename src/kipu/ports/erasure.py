"""The seam to what a session leaves outside its store: places that an erasure must empty too (C20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kipu.ports.head import Head
from kipu.ports.store import EventStore

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Emptied:
    """What a place removed, by kind, and what it left on purpose (stable words, and nothing of a session's content)."""

    removed: Mapping[str, int] = field(default_factory=dict)
    kept: tuple[str, ...] = ()


class ErasurePlace(Protocol):
    """A place outside the log where something of a session, or of a person, may be.

    Contract:
    - `plan` is asked while the session can still be read and changes nothing. What it returns is all that `erase` will know:
      it is durable, and gone when the erasure is done.
    - `erase` and `erase_person` may be called again after a kill at any point, and for what is gone already; they return what
      this call removed. When they have returned, nothing of the session, or the person, is in the place.
    - A place keeps what is not Kipu's (a directory that a user chose) and says so in `kept`.
    """

    @property
    def name(self) -> str:
        """Return what receipts call it."""
        ...

    async def plan(self, head: Head, *, store: EventStore) -> Facts | None:
        """Return what erasing the session here will need to know, None where nothing of it can be here."""
        ...

    async def settle_fork(self, head: Head) -> None:
        """Give a fork its own of what it still shares here with the session it was forked from, before that one goes."""
        ...

    async def erase(self, session_id: str, facts: Facts) -> Emptied:
        """Remove what is here of the session."""
        ...

    async def erase_person(self, tenant: str, owner: str) -> Emptied:
        """Remove what is here of the person, beyond their sessions."""
        ...

    def roots(self) -> Sequence[Path]:
        """Return the folders and files where this place keeps things, for the proof to look at."""
        ...
