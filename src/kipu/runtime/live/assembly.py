"""From pieces, which may come late, twice or not at all, to news that a watcher can show: each character once, in order."""

from __future__ import annotations

from collections.abc import Callable

from kipu.events.content import text_of
from kipu.events.conversation import AgentMessageEvent, ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent, TurnParkedEvent, TurnResumedEvent, TurnStartedEvent
from kipu.ports.model import ReasoningDelta, TextDelta
from kipu.runtime.live.piece import Piece
from kipu.runtime.observer import EndNews, LostNews, ModelNews, News, RetryNews, ToolNews

_TURN_MOVES = TurnStartedEvent | TurnResumedEvent | TurnParkedEvent | TurnFinishedEvent


class Assembly:
    """Judge each piece by the log, which supersedes it, and by what came before it. `ask` is called where pieces are missing.

    - What began before the turn was taken up elsewhere, or under an older fencing token, is a zombie's and is not shown.
    - An answer is shown from its first character on and without a gap, or not at all until the log has it. What is shown of it
      when the log has it is its beginning: the rest is given just before the event, so that nothing is shown twice.
    - Of a call's output what is missing is passed over.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._token = 0
        self._over = 0  # answers that began before this event are over
        self._moved = 0  # and calls before this one
        self._results: set[str] = set()  # calls of the turn that have theirs
        self._outputs: dict[str, tuple[tuple[str, int], int]] = {}  # stream and place, by call
        self._answer: Piece | None = None  # the first that came of it
        self._place = 0
        self._shown: list[str] = []
        self._is_whole = False

    # ---- the log ---------------------------------------------------------------------------------------------------

    def event(self, event: SessionEvent) -> list[News]:
        """Return what is to be shown before this event, which is the next of the log."""
        if isinstance(event, TurnStartedEvent | TurnResumedEvent):
            self._token = max(self._token, event.token or 0)
        if isinstance(event, _TURN_MOVES):
            self._over = self._moved = event.seq
            self._results.clear()
            self._outputs.clear()
            return self._forget()
        if isinstance(event, AgentMessageEvent):
            self._over = event.seq
            return self._completed(text_of(event.content))
        if isinstance(event, ToolResultEvent):
            self._results.add(event.tool_call_id)
            self._outputs.pop(event.tool_call_id, None)
        return []

    def _completed(self, text: str) -> list[News]:
        """Return the rest of an answer that the log has now."""
        shown = "".join(self._shown)
        if self._answer is None or not shown or self._is_whole:
            self._begin(None)
            return []
        answer = self._answer
        if not text.startswith(shown):
            return self._forget()
        self._begin(None)
        rest = text[len(shown) :]
        return [ModelNews(answer.session_id, answer.turn_id, TextDelta(rest))] if rest else []

    def _forget(self) -> list[News]:
        """Give up an answer that was being shown, as far as it goes on no more."""
        answer, is_shown = self._answer, bool(self._shown)
        self._begin(None)
        return [LostNews(answer.session_id, answer.turn_id)] if answer is not None and is_shown else []

    def _begin(self, answer: Piece | None) -> None:
        self._answer, self._place, self._is_whole = answer, 0, False
        self._shown.clear()

    # ---- pieces ----------------------------------------------------------------------------------------------------

    def take(self, piece: Piece) -> list[News]:
        """Return what a piece adds, which began behind an event that was given before."""
        if piece.token < self._token or piece.at < self._moved:
            return []
        self._token = piece.token
        if piece.call_id is not None:
            return self._output(piece, piece.call_id)
        if piece.at < self._over:
            return []
        if piece.retry is not None:
            return self._retry(piece)
        lost: list[News] = []
        if self._answer is None or piece.stream != self._answer.stream:
            if self._answer is not None and _is_older(piece.stream, self._answer.stream):
                return []
            lost = self._forget()
            self._begin(piece)
        return lost + self._text(piece)

    def _retry(self, piece: Piece) -> list[News]:
        if self._answer is not None and _is_older(piece.stream, self._answer.stream):
            return []
        self._begin(piece)  # whose number is higher than that of the try which does not count
        reason, wait_s = piece.retry or ("", 0.0)
        return [RetryNews(piece.session_id, piece.turn_id, reason, wait_s, at=piece.at, token=piece.token)]

    def _text(self, piece: Piece) -> list[News]:
        if piece.offset > self._place:
            self._ask()
            return []
        news: list[News] = []
        for kind, text in piece.after(self._place):
            if kind == "text":
                self._shown.append(text)
            delta = TextDelta(text) if kind == "text" else ReasoningDelta(text)
            news.append(ModelNews(piece.session_id, piece.turn_id, delta))
        self._place = max(self._place, piece.offset + piece.length)
        if piece.ended and not self._is_whole:
            self._is_whole = True
            news.append(EndNews(piece.session_id, piece.turn_id))
        return news

    def _output(self, piece: Piece, call_id: str) -> list[News]:
        stream, place = self._outputs.get(call_id, (piece.stream, 0))
        if call_id in self._results or _is_older(piece.stream, stream):
            return []
        if piece.stream != stream:
            place = 0
        self._outputs[call_id] = piece.stream, max(place, piece.offset + piece.length)
        about = piece.session_id, piece.turn_id, call_id
        news: list[News] = [ToolNews(*about, text) for _, text in piece.after(place)]
        return [*news, EndNews(*about)] if piece.ended else news


def _is_older(stream: tuple[str, int], than: tuple[str, int]) -> bool:
    """Return True for an earlier stream of the same process; of two processes the log and the tokens tell."""
    return stream[0] == than[0] and stream[1] < than[1]
