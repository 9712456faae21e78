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

from kipu.testing.fake_provider_formats import FakeAnswer, FakeCall, FakeFailure, chat_events, messages_events
from kipu.testing.fake_provider_formats import responses_events as _responses_events

__all__ = ["FakeAnswer", "FakeCall", "FakeFailure", "FakeProvider", "RecordedRequest"]

POLL_S = 0.02
FORMATS: dict[str, Callable[[FakeAnswer, str], Iterator[bytes]]] = {
    "chat/completions": chat_events,
    "responses": _responses_events,
    "messages": messages_events,
}


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


class FakeProvider:
    """Answer each request with the next of `answers`, in order; when they are used up, with status 500.

    `held` is set while an answer is silent at its `hold_after`; `abandoned` when a client left before the end.
    """

    def __init__(
        self, answers: Sequence[FakeAnswer | FakeFailure] = (), *, served_models: Sequence[str] = ("fake",)
    ) -> None:
        self.answers: deque[FakeAnswer | FakeFailure] = deque(answers)
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

    def add(self, *answers: FakeAnswer | FakeFailure) -> None:
        """Script more answers."""
        self.answers.extend(answers)

    def release(self) -> None:
        """Let held answers go on."""
        self._released.set()

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


class _Server(ThreadingHTTPServer):
    provider: FakeProvider
    daemon_threads = True

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
        elif not provider.answers:
            self._send(500, FakeFailure(500, "no answer is scripted", "server_error").content())
        else:
            answer = provider.answers.popleft()
            if isinstance(answer, FakeFailure):
                self._send(answer.status, answer.content(), dict(answer.headers))
            else:
                self._stream(answer, FORMATS[path](answer, str(json.loads(body).get("model"))))

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

    def _stream(self, answer: FakeAnswer, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(events):
                if number == answer.hold_after and not self.server.provider.hold(self.connection):
                    self.close_connection = True
                    return
                if number == answer.cut_after:
                    self.close_connection = True
                    return
                if number == answer.fail_after and answer.failure:
                    self._chunk(b"event: error\ndata: " + answer.failure.content() + b"\n\n")
                    break
                if number == answer.end_after:
                    break
                self._chunk(event)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
            self.server.provider.abandoned.set()

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()
