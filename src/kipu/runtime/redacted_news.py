"""Live news without secrets: what streams is held back until it is known to be none, as the log will have it."""

from __future__ import annotations

from dataclasses import replace

from kipu.ports.model import ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from kipu.runtime.observer import EndNews, ModelNews, News, RetryNews, ToolNews, TurnObserver
from kipu.security.redaction.redactor import Redactor
from kipu.security.redaction.streaming import StreamRedactor

_Stream = tuple[str, str, str, str]  # session, turn, kind, which of them


class RedactedNews:
    """Hand news on to another observer, every stream of text through a redactor of its own."""

    def __init__(self, inner: TurnObserver, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor
        self._streams: dict[_Stream, StreamRedactor] = {}

    def tell(self, news: News) -> None:
        """Hand a piece of news on, as far as it is safe; what was held back comes with the next pieces or the end."""
        if isinstance(news, ModelNews):
            self._model(news)
        elif isinstance(news, ToolNews):
            text = self._stream(news, "tool", news.call_id).feed(news.text)
            if text:
                self._inner.tell(replace(news, text=text))
        elif isinstance(news, EndNews):
            self._end(news)
            self._inner.tell(news)
        elif isinstance(news, RetryNews):
            self._forget(news)
            self._inner.tell(replace(news, reason=str(self._redactor.redact(news.reason, places=False).value)))
        else:
            self._inner.tell(news)

    def _model(self, news: ModelNews) -> None:
        event = news.event
        if isinstance(event, ModelReply):  # a reply is kept whole, and not told
            return
        if isinstance(event, ToolCallDelta):
            # Arguments are JSON in pieces: what a field's name gives away is seen when they are whole, in the log.
            if event.name:
                self._inner.tell(replace(news, event=replace(event, arguments="")))
            return
        kind = "text" if isinstance(event, TextDelta) else "reasoning"
        text = self._stream(news, kind, "").feed(event.text)
        if text:
            self._inner.tell(replace(news, event=replace(event, text=text)))

    def _stream(self, news: ModelNews | ToolNews, kind: str, which: str) -> StreamRedactor:
        key = (news.session_id, news.turn_id, kind, which)
        if key not in self._streams:
            self._streams[key] = StreamRedactor(self._redactor)
        return self._streams[key]

    def _end(self, news: EndNews) -> None:
        """Give what is held back of the streams that ended."""
        kinds = ("text", "reasoning") if news.call_id is None else ("tool",)
        for kind in kinds:
            stream = self._streams.pop((news.session_id, news.turn_id, kind, news.call_id or ""), None)
            rest = stream.finish() if stream is not None else ""
            if not rest:
                continue
            if news.call_id is not None:
                self._inner.tell(ToolNews(news.session_id, news.turn_id, news.call_id, rest))
            else:
                event = TextDelta(rest) if kind == "text" else ReasoningDelta(rest)
                self._inner.tell(ModelNews(news.session_id, news.turn_id, event))

    def _forget(self, news: RetryNews) -> None:
        """Drop what is held back of an answer that does not count."""
        for kind in ("text", "reasoning"):
            self._streams.pop((news.session_id, news.turn_id, kind, ""), None)
