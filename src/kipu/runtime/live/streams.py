"""What streams in this process now, with all of it so far, and whoever watches it or what comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from kipu.ports.model import ReasoningDelta, TextDelta
from kipu.runtime.live.piece import Kind, Part, Piece, joined
from kipu.runtime.observer import BeginNews, EndNews, ModelNews, News, RetryNews, ToolNews

Put: TypeAlias = Callable[[Piece], None]
MOST_OF_ANSWER = 1_000_000  # characters that are kept for who comes later
MOST_OF_OUTPUT = 64_000
_GATHER_AT = 1_000  # parts


class Elsewhere(Protocol):
    """What of this process others hear, and it of them."""

    def moved(self, stream: Stream) -> None:
        """Know that a stream has something new. It is called for every token."""
        ...

    def said(self, piece: Piece) -> None:
        """Know of a piece of no stream that goes on."""
        ...

    def wanted(self, session_id: str) -> None:
        """Have everything that streams of a session elsewhere come, from its beginning, until `unwanted`."""
        ...

    def unwanted(self, session_id: str) -> None:
        """Have it come no more."""
        ...


class Stream:
    """One stream: what it has said, as far as it is kept, and what of that was not sent elsewhere yet."""

    __slots__ = (
        "_gathered",
        "_kept",
        "_most",
        "_unsent",
        "begun",
        "end",
        "ended",
        "is_told",
        "kept_from",
        "name",
        "unsent_from",
    )

    def __init__(self, begun: BeginNews, *, name: tuple[str, int]) -> None:
        self.begun = begun
        self.name = name
        self._kept: list[Part] = []
        self._gathered = 0
        self._most = MOST_OF_ANSWER if begun.call_id is None else MOST_OF_OUTPUT
        self._unsent: list[Part] = []
        self.kept_from = self.unsent_from = self.end = 0
        self.ended = False
        self.is_told = False  # that it ended

    def add(self, kind: Kind, text: str, *, is_wanted: bool) -> None:
        """Take in what it says."""
        self._kept.append((kind, text))
        self.end += len(text)
        if is_wanted:
            self._unsent.append((kind, text))
        else:
            self.unsent_from = self.end
            self._unsent.clear()
        self._gathered += 1
        if self._gathered >= _GATHER_AT or self.end - self.kept_from > 2 * self._most:
            self._gather()

    def _gather(self) -> None:
        """Keep few long parts in the place of many short ones, and no more than is to be kept."""
        whole = self.piece(self.kept_from, joined(self._kept))
        self.kept_from = max(self.kept_from, self.end - self._most)
        self._kept, self._gathered = list(whole.after(self.kept_from)), 0
        if self._unsent and self.unsent_from < self.kept_from:  # the line is slow, and the call is not
            self._unsent, self.unsent_from = list(self._kept), self.kept_from

    def whole(self) -> Piece:
        """Return all that is kept."""
        return self.piece(self.kept_from, joined(self._kept), ended=self.ended)

    def again(self) -> None:
        """Have all that is kept sent elsewhere once more."""
        self._unsent, self.unsent_from, self.is_told = list(self._kept), self.kept_from, False

    def unsent(self) -> Piece:
        """Return what was not sent elsewhere yet, which counts as sent then. Of a call's output that ran ahead, the last of it."""
        parts, offset = joined(self._unsent), self.unsent_from
        self._unsent, self.unsent_from, self.is_told = [], self.end, self.ended
        piece = self.piece(offset, parts, ended=self.ended)
        if self.begun.call_id is not None and piece.length > MOST_OF_OUTPUT:
            offset = self.end - MOST_OF_OUTPUT
            piece = self.piece(offset, piece.after(offset), ended=self.ended)
        return piece

    @property
    def has_unsent(self) -> bool:
        """Return True where something is to be sent."""
        return bool(self._unsent) or (self.ended and not self.is_told)

    def piece(self, offset: int, parts: tuple[Part, ...], *, ended: bool = False) -> Piece:
        """Return these parts as a piece of it."""
        begun = self.begun
        place = (begun.session_id, begun.turn_id, begun.call_id, self.name)
        return Piece(*place, at=begun.at, token=begun.token, offset=offset, parts=parts, ended=ended)


class LiveStreams:
    """Take news of this process's turns, and hand pieces to whoever watches: those of this process and those from elsewhere.

    `name` is this process's own, for its streams. Who begins to watch is given what streams now from its beginning on.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.elsewhere: Elsewhere | None = None
        self.is_wanted: Callable[[str], bool] = _never
        self._count = 0
        self._running: dict[str, dict[str | None, Stream]] = {}  # by session, then by call
        self._listeners: dict[str, list[Put]] = {}

    def tell(self, news: News) -> None:
        """Take one piece of news."""
        if isinstance(news, BeginNews):
            self._count += 1
            stream = Stream(news, name=(self.name, self._count))
            self._running.setdefault(news.session_id, {})[news.call_id] = stream
        elif isinstance(news, ToolNews):
            self._add(news.session_id, news.call_id, kind="output", text=news.text)
        elif isinstance(news, ModelNews):
            if isinstance(news.event, TextDelta | ReasoningDelta):
                kind: Kind = "text" if isinstance(news.event, TextDelta) else "reasoning"
                self._add(news.session_id, None, kind=kind, text=news.event.text)
        elif isinstance(news, EndNews):
            self._end(news)
        elif isinstance(news, RetryNews):
            self._retry(news)

    def _add(self, session_id: str, call_id: str | None, *, kind: Kind, text: str) -> None:
        stream = self._running.get(session_id, {}).get(call_id)
        if stream is None or not text:
            return
        if session_id in self._listeners:
            self.bring(stream.piece(stream.end, ((kind, text),)))
        stream.add(kind, text, is_wanted=self.is_wanted(session_id))
        if self.elsewhere is not None:
            self.elsewhere.moved(stream)

    def _end(self, news: EndNews) -> None:
        streams = self._running.get(news.session_id, {})
        stream = streams.pop(news.call_id, None)
        if not streams:
            self._running.pop(news.session_id, None)
        if stream is None:
            return
        stream.ended = True
        self.bring(stream.piece(stream.end, (), ended=True))
        if self.elsewhere is not None:
            self.elsewhere.moved(stream)

    def _retry(self, news: RetryNews) -> None:
        self._count += 1
        name, why = (self.name, self._count), (news.reason, news.wait_s)
        piece = Piece(news.session_id, news.turn_id, None, name, at=news.at, token=news.token, retry=why)
        self.bring(piece)
        if self.elsewhere is not None:
            self.elsewhere.said(piece)

    def bring(self, piece: Piece) -> None:
        """Hand a piece to whoever watches its session here."""
        for put in self._listeners.get(piece.session_id, ()):
            put(piece)

    def running(self, session_id: str) -> list[Stream]:
        """Return what streams of a session in this process now."""
        return list(self._running.get(session_id, {}).values())

    @contextmanager
    def listen(self, session_id: str, put: Put) -> Iterator[None]:
        """Give pieces of a session to `put` while the block runs."""
        self._listeners.setdefault(session_id, []).append(put)
        self.ask(session_id, put)
        try:
            yield
        finally:
            listeners = self._listeners[session_id]
            listeners.remove(put)
            if not listeners:
                del self._listeners[session_id]
                if self.elsewhere is not None:
                    self.elsewhere.unwanted(session_id)

    def ask(self, session_id: str, put: Put) -> None:
        """Give what streams now from its beginning on: at once what does here, and soon what does elsewhere."""
        for stream in self.running(session_id):
            put(stream.whole())
        if self.elsewhere is not None:
            self.elsewhere.wanted(session_id)


def _never(_session_id: str) -> bool:
    return False
