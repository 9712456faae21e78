"""Copy sessions from one store to another, verified event by event; killed and started again, it goes on (C22)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kipu.ports.store import EventStore


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy has come. Events that the target has already count as done."""

    sessions_done: int
    sessions_total: int
    events_done: int
    events_total: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A session that was not copied, or not wholly, and why. Nothing of it was changed in either store."""

    session_id: str
    code: str  # of the error, such as "copy_mismatch", "session_erased", "store_corrupt"
    reason: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did."""

    sessions: int = 0  # sessions that are the same in both stores now
    unchanged: int = 0  # of these: sessions where nothing had to be added
    events: int = 0  # events added
    blobs: int = 0  # blobs added
    bindings: int = 0  # keys that lead to copied sessions now and did not before
    lost: int = 0  # records that the source has lost, for which the target has `damaged` events
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()  # missing blobs, keys left where the target had them, parents that are gone


async def copy_store(
    source: EventStore,
    target: EventStore,
    *,
    owner: str,
    progress: Callable[[CopyProgress], None] | None = None,
    sessions: Sequence[str] | None = None,
    verify: bool = True,
) -> CopyReport:
    """Make the target's sessions the same as the source's: events, heads, keys and blobs. The source is only read.

    Run again, it goes on where it was stopped and adds what is new. `sessions` limits it to these and the ones they were
    forked from. A session that the target has with other events is left alone: the others are copied, then it raises.

    Raises:
        CopyMismatchError: a session differs; `report` among its data says what was done.
        SessionNotFoundError: one of `sessions` is not in the source.
    """
    raise NotImplementedError
