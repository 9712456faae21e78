"""A bounded memory of live sessions: for one id there is never more than one object (A45)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from kipu.errors import KipuError


class Cached(Protocol):
    """What the cache asks of a session."""

    @property
    def in_use(self) -> bool:
        """Return True while somebody holds its lock, waits for it, or follows it."""
        ...

    async def save(self) -> None:
        """Store what is not stored yet; raise when that fails."""
        ...


T = TypeVar("T", bound=Cached)


class SessionCache(Generic[T]):
    """Keep at most `limit` objects strongly, the least recently used going first.

    One in use is never let go, and one whose saving fails stays (A47). An object that somebody outside still holds is found
    again through a weak reference, so that a second one never comes into being beside it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._recent: OrderedDict[str, T] = OrderedDict()
        self._alive: WeakValueDictionary[str, T] = WeakValueDictionary()

    def get(self, session_id: str) -> T | None:
        """Return the live object and make it the most recently used."""
        found = self._alive.get(session_id)
        if found is not None:
            self._recent[session_id] = found
            self._recent.move_to_end(session_id)
        return found

    def put(self, session_id: str, session: T) -> None:
        """Keep a new object as the most recently used."""
        self._alive[session_id] = session
        self._recent[session_id] = session
        self._recent.move_to_end(session_id)

    def drop(self, session_id: str) -> None:
        """Forget the object, as after erasure."""
        self._recent.pop(session_id, None)
        self._alive.pop(session_id, None)

    async def shrink(self, *, on_failure: Callable[[T, KipuError], None]) -> None:
        """Let go of the least recently used objects over the limit, each saved first; `on_failure` is told of those that stay."""
        for session_id in list(self._recent):
            if len(self._recent) <= self._limit:
                return
            session = self._recent.get(session_id)  # saving awaits: others shrink too, or erase one
            if session is None or session.in_use:
                continue
            try:
                await session.save()
            except KipuError as error:
                on_failure(session, error)
                continue
            if not session.in_use:  # saving awaited: somebody may have come meanwhile
                self._recent.pop(session_id, None)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._recent.values()))

    def __len__(self) -> int:
        return len(self._recent)
