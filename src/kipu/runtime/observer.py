"""Live news of turns for whoever watches: what streams and is never logged. The log has the whole messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kipu.ports.model import ModelEvent


@dataclass(frozen=True, slots=True)
class BeginNews:
    """An answer begins to stream, or with `call_id` a call's output: behind the event `at`, under the fencing `token`."""

    session_id: str
    turn_id: str
    call_id: str | None = None
    at: int = 0
    token: int = 0


@dataclass(frozen=True, slots=True)
class ModelNews:
    """A piece of an answer."""

    session_id: str
    turn_id: str
    event: ModelEvent


@dataclass(frozen=True, slots=True)
class ToolNews:
    """A piece of a tool's output."""

    session_id: str
    turn_id: str
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RetryNews:
    """An answer is asked for again: what streamed of the one before does not count."""

    session_id: str
    turn_id: str
    reason: str
    wait_s: float
    at: int = 0
    token: int = 0


@dataclass(frozen=True, slots=True)
class LostNews:
    """Pieces of an answer did not come: what was shown of it does not count, the log has it whole."""

    session_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class EndNews:
    """No more comes of an answer, or with `call_id` of a call's output: the log has it next, whole."""

    session_id: str
    turn_id: str
    call_id: str | None = None


News: TypeAlias = BeginNews | ModelNews | ToolNews | RetryNews | LostNews | EndNews


class TurnObserver(Protocol):
    """Take news; never wait, never raise."""

    def tell(self, news: News) -> None:
        """Take one piece of news."""
        ...


class NoObserver:
    """Take no notice."""

    def tell(self, news: News) -> None:
        """Do nothing."""


class Observers:
    """Tell several."""

    def __init__(self, *observers: TurnObserver) -> None:
        self._observers = observers

    def tell(self, news: News) -> None:
        """Hand a piece of news to each."""
        for observer in self._observers:
            observer.tell(news)


class LiveFeed:
    """Hand news to everybody who listens. A listener that does not keep up loses the oldest pieces, never the log's events."""

    def __init__(self, *, pieces_kept: int = 2_000) -> None:
        self._pieces_kept = pieces_kept
        self._listeners: dict[str | None, list[Listener]] = {}

    def tell(self, news: News) -> None:
        """Hand a piece of news on."""
        for key in (news.session_id, None):
            for listener in self._listeners.get(key, ()):
                listener.put(news)

    @contextmanager
    def listen(self, session_id: str | None = None, *, listener: Listener | None = None) -> Iterator[Listener]:
        """Return a listener (the one given, where it is one of another kind) for one session, or for all, while the block runs."""
        listener = listener or Listener(self._pieces_kept)
        listeners = self._listeners.setdefault(session_id, [])
        listeners.append(listener)
        try:
            yield listener
        finally:
            listeners.remove(listener)
            if not listeners:
                self._listeners.pop(session_id, None)


class Listener:
    """News as they come: `async for`."""

    def __init__(self, pieces_kept: int) -> None:
        self._queue: asyncio.Queue[News] = asyncio.Queue(pieces_kept)
        self.lost = 0

    def put(self, news: News) -> None:
        """Take a piece, and forget the oldest when there are too many."""
        if self._queue.full():
            self._queue.get_nowait()
            self.lost += 1
        self._queue.put_nowait(news)

    async def __aiter__(self) -> AsyncIterator[News]:
        """Yield news until the task is cancelled."""
        while True:
            yield await self._queue.get()

    def drain(self) -> list[News]:
        """Return what is there, without waiting."""
        found = []
        while not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found
