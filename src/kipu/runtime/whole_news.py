"""Live news in whole characters, as the log will have them: providers cut between the halves of one, and no line carries a half."""

from __future__ import annotations

from dataclasses import replace

from kipu.events.normalise import normalise
from kipu.ports.model import ReasoningDelta, TextDelta
from kipu.runtime.observer import EndNews, ModelNews, News, RetryNews, ToolNews, TurnObserver

_Stream = tuple[str, str, str, str]  # session, turn, kind, which of them


class WholeNews:
    """Hand news on to another observer; the first half of a character waits for the second, and alone is what the log makes of it."""

    def __init__(self, inner: TurnObserver) -> None:
        self._inner = inner
        self._halves: dict[_Stream, tuple[ModelNews | ToolNews, str]] = {}

    def tell(self, news: News) -> None:
        """Hand a piece of news on, in characters that can be stored and sent."""
        if isinstance(news, ToolNews):
            self._piece(news, (news.session_id, news.turn_id, "tool", news.call_id), news.text)
        elif isinstance(news, ModelNews) and isinstance(news.event, TextDelta | ReasoningDelta):
            kind = "text" if isinstance(news.event, TextDelta) else "reasoning"
            self._piece(news, (news.session_id, news.turn_id, kind, ""), news.event.text)
        else:
            if isinstance(news, EndNews):
                self._end(news)
            elif isinstance(news, RetryNews):
                self._forget(news)
                news = replace(news, reason=_stored(news.reason))
            self._inner.tell(news)

    def _piece(self, news: ModelNews | ToolNews, stream: _Stream, text: str) -> None:
        if self._halves:
            _, half = self._halves.pop(stream, (news, ""))
            text = half + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[stream] = news, text[-1]
            text = text[:-1]
        if text:
            self._give(news, _stored(text))

    def _give(self, news: ModelNews | ToolNews, text: str) -> None:
        if isinstance(news, ToolNews):
            self._inner.tell(news if text is news.text else replace(news, text=text))
        elif isinstance(news.event, TextDelta | ReasoningDelta):
            same = text is news.event.text
            self._inner.tell(news if same else replace(news, event=replace(news.event, text=text)))

    def _end(self, end: EndNews) -> None:
        """Give the halves that nothing followed."""
        for kind in ("text", "reasoning") if end.call_id is None else ("tool",):
            news, half = self._halves.pop((end.session_id, end.turn_id, kind, end.call_id or ""), (None, ""))
            if news is not None:
                self._give(news, _stored(half))

    def _forget(self, news: RetryNews) -> None:
        """Drop the halves of an answer that does not count."""
        for kind in ("text", "reasoning"):
            self._halves.pop((news.session_id, news.turn_id, kind, ""), None)


def _stored(text: str) -> str:
    """Return the text as an event keeps it."""
    return str(normalise(text)[0])
