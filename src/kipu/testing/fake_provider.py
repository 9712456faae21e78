"""A model provider on loopback: real HTTP for real client libraries, with scripted answers and a record of what was asked.

Speaks OpenAI Chat Completions (`/v1/chat/completions`), OpenAI Responses (`/v1/responses`), Anthropic Messages
(`/v1/messages`), and the lists of models of OpenAI (`/v1/models`) and Ollama (`/api/tags`). Needs the standard library only.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from kipu.testing.fake_provider_formats import (
    FakeAnswer,
    FakeCall,
    FakeCut,
    FakeFailure,
    Scripted,
    chat_events,
    messages_events,
    responses_events,
)
from kipu.testing.validators import Violation, validate

__all__ = ["FakeAnswer", "FakeCall", "FakeFailure", "FakeProvider", "RecordedRequest", "Scripted"]

POLL_S = 0.02
FORMATS: dict[str, Callable[[FakeAnswer, str], Iterator[bytes]]] = {
    "chat/completions": chat_events,
    "responses": responses_events,
    "messages": messages_events,
}
TARGETS = {"chat/completions": "openai_chat", "responses": "openai_responses", "messages": "anthropic"}
BEFORE_HEADERS = -1


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """Hold one request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body parsed."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def format(self) -> str:
        """Return what is asked for: "chat/completions", "responses", "messages", or another path."""
        return self.path.partition("?")[0].removeprefix("/v1/")

    def violations(self) -> list[Violation]:
        """Return every rule of the provider that the body breaks (`kipu.testing.validators`)."""
        return validate(TARGETS[self.format], self.json())


class FakeProvider:
    """Answer each request with the next of `answers`, in order; when they are used up, by `script`, else with status 500.

    An answer may be a function of the request's JSON, as `script` is; functions of requests at once run at once, each in its
    own thread (`fake_provider_requests` reads what was asked). `held` is set while an answer is silent at its `hold_after`;
    `abandoned` when a client left before the end.
    """

    def __init__(
        self,
        answers: Sequence[Scripted] = (),
        *,
        script: Scripted | None = None,
        served_models: Sequence[str] = ("fake",),
    ) -> None:
        self.answers: deque[Scripted] = deque(answers)
        self.script = script
        self.served_models = tuple(served_models)
        self.requests: list[RecordedRequest] = []
        self.held = threading.Event()
        self.abandoned = threading.Event()
        self._released = threading.Event()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)

    @property
    def root_url(self) -> str:
        """Return the address without a path, which Anthropic's and Ollama's clients want."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """Return the address that OpenAI's clients want."""
        return f"{self.root_url}/v1"

    @property
    def asked(self) -> list[RecordedRequest]:
        """Return the model calls among the requests."""
        return [request for request in self.requests if request.method == "POST"]

    def add(self, *answers: Scripted) -> None:
        """Script more answers."""
        self.answers.extend(answers)

    def violations(self) -> list[Violation]:
        """Return every rule that any body of a model call breaks."""
        return [violation for request in self.asked for violation in request.violations()]

    def answer_to(self, body: dict[str, Any]) -> FakeAnswer | FakeFailure:
        """Return what is said to a request."""
        try:
            scripted = self.answers.popleft()
        except IndexError:
            scripted = self.script or FakeFailure(500, "no answer is scripted", "server_error")
        return scripted(body) if callable(scripted) else scripted

    def release(self) -> None:
        """Let held answers go on, and those that would still be held."""
        self._released.set()

    def hold_again(self) -> None:
        """Let later answers hold again after a release."""
        self._released.clear()
        self.held.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def hold(self, connection: socket.socket) -> bool:
        """Stay silent until released; return False when the client has gone."""
        self.held.set()
        while not self._released.is_set():
            readable, _, _ = select.select([connection], [], [], POLL_S)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                self.abandoned.set()
                return False
        return not self._closing.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, or less when the provider closes."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    provider: FakeProvider
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that go away are part of the script."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""

    def do_GET(self) -> None:
        """List the models."""
        provider = self._record(b"")
        if self.path.endswith("/models"):
            found = {"object": "list", "data": [{"id": name, "object": "model"} for name in provider.served_models]}
        elif self.path == "/api/tags":
            found = {"models": [{"name": name, "model": name} for name in provider.served_models]}
        else:
            self._send(404, b'{"error":{"message":"unknown path"}}')
            return
        self._send(200, json.dumps(found).encode())

    def do_POST(self) -> None:
        """Give the next scripted answer."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        provider = self._record(body)
        path = self.path.partition("?")[0].removeprefix("/v1/")
        if path not in FORMATS:
            self._send(404, b'{"error":{"message":"unknown path"}}')
            return
        asked = json.loads(body)
        answer = provider.answer_to(asked)
        if isinstance(answer, FakeAnswer):
            self._stream(answer, path, events=FORMATS[path](answer, str(asked.get("model"))))
        elif answer.status:
            self._send(answer.status, answer.content(), dict(answer.headers))
        else:
            self.close_connection = True

    def _record(self, body: bytes) -> FakeProvider:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.provider.requests.append(RecordedRequest(self.command, self.path, headers, body))
        return self.server.provider

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: FakeAnswer, path: str, *, events: Iterator[bytes]) -> None:
        provider = self.server.provider
        if answer.hold_after == BEFORE_HEADERS and not provider.hold(self.connection):
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            self._events(answer, path, events=events)
        except FakeCut:
            self.close_connection = True
        except OSError:
            self.close_connection = True
            provider.abandoned.set()

    def _events(self, answer: FakeAnswer, path: str, *, events: Iterator[bytes]) -> None:
        provider = self.server.provider
        for number, event in enumerate(events):
            if number == answer.hold_after and not provider.hold(self.connection):
                raise FakeCut
            if number == answer.cut_after:
                raise FakeCut
            if number == answer.fail_after and answer.failure:
                self._chunk(answer.failure.as_event(path))
                break
            if number == answer.end_after:
                break
            if answer.drip_s:
                provider.pause(answer.drip_s)
            self._chunk(event)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()
