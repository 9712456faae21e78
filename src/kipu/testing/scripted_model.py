"""A model client without HTTP: it answers by a list or by a function of what it is asked, and keeps every request."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from kipu.errors import ModelError, ModelUnavailableError
from kipu.ports.model import (
    JsonObject,
    ModelDescription,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    ReasoningDelta,
    ReplyState,
    TextDelta,
    ToolCallDelta,
)
from kipu.runtime.models.opaque import AssistantPart
from kipu.runtime.models.reply import build_reply, neutral_call
from kipu.runtime.models.reply_stream import ReplyStream


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call. Text as `arguments` is sent as it is, also when it is no JSON.

    Without `call_id` it is `call_0`, `call_1` … in every answer anew, as careless providers do.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One answer: reasoning, text, calls, in this order; nothing at all is an empty answer.

    `before` is awaited before anything is said, `hold_after` waits for `ScriptedModelClient.release` after so many deltas,
    `error` is raised after `error_after` deltas (None: after all of them) instead of the reply, and an `endless` answer
    repeats its text until it is interrupted. A `signature` seals the reasoning.
    """

    text: str = ""
    reasoning: str = ""
    signature: str = ""
    calls: Sequence[ScriptedCall] = ()
    usage: ModelUsage = field(default_factory=lambda: ModelUsage(10, 5))
    finish_reason: str | None = None
    served_model: str | None = None
    piece_chars: int = 12
    before: Callable[[], Awaitable[object]] | None = None
    hold_after: int | None = None
    error: ModelError | None = None
    error_after: int | None = None
    endless: bool = False


Scripted: TypeAlias = str | ScriptedReply | ModelError
Script: TypeAlias = Sequence[Scripted] | Callable[[ModelRequest], Scripted | Awaitable[Scripted]]


class ScriptedModelClient:
    """Answer each request with the next of a list, or with what a function (async too) says (contract: `ModelClient`).

    A text is an answer, a `ModelError` is raised. A used-up list raises `ModelUnavailableError`. `requests` has what was
    asked; `held` is set while an answer waits for `release`; `running` and `peak` count streams that are read at once.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        provider: str = "scripted",
        model: str = "model-1",
        context_window: int | None = None,
        supports_tools: bool = True,
    ) -> None:
        self._script: Callable[[ModelRequest], Scripted | Awaitable[Scripted]]
        self._waiting: deque[Scripted] = deque()
        if callable(script):
            self._script = script
        else:
            self._waiting.extend(script)
            self._script = self._next
        self._description = ModelDescription(
            name=f"{provider}:{model}",
            provider=provider,
            model=model,
            context_window_tokens=context_window,
            supports_tools=supports_tools,
            is_ai=False,
        )
        self.requests: list[ModelRequest] = []
        self.held = asyncio.Event()
        self.running = 0
        self.peak = 0
        self.interrupted = 0
        self.closed = 0
        self._released = asyncio.Event()

    @property
    def name(self) -> str:
        """Return `provider:model`."""
        return self._description.name

    @property
    def context_window(self) -> int | None:
        """Return the window it was given."""
        return self._description.context_window_tokens

    def describe(self) -> ModelDescription:
        """Return the description."""
        return self._description

    def add(self, *answers: Scripted) -> None:
        """Script more answers; for a client with a list."""
        self._waiting.extend(answers)

    def release(self) -> None:
        """Let held answers go on, and those that would still be held."""
        self._released.set()

    def stream(self, request: ModelRequest) -> ReplyStream:
        """Return the answer as it comes; the request is recorded when its first event is asked for."""
        answer = _Answer(self._description)
        return ReplyStream(self._events(request, answer), answer.partial)

    async def aclose(self) -> None:
        """Count that it was closed."""
        self.closed += 1

    def _next(self, _request: ModelRequest) -> Scripted:
        if self._waiting:
            return self._waiting.popleft()
        return ModelUnavailableError(model=self.name, status=500, reason="no answer is scripted", retry_after_s=None)

    async def _events(self, request: ModelRequest, answer: _Answer) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        self.running += 1
        self.peak = max(self.peak, self.running)
        ended = False
        try:
            scripted = self._script(request)
            if not isinstance(scripted, str | ScriptedReply | ModelError):
                # The cast is for mypy: an error's `__getattr__` makes it look awaitable.
                scripted = await cast("Awaitable[Scripted]", scripted)
            answer.begin(scripted)
            script = answer.script
            if script.before is not None:
                await script.before()
            for number, delta in enumerate(answer.deltas()):
                if number == script.hold_after:
                    await self._hold()
                if script.error is not None and number == script.error_after:
                    raise script.error
                await asyncio.sleep(0)
                answer.note(delta)
                yield delta
            if script.error is not None:
                raise script.error
            ended = True
            yield answer.reply("complete")
        finally:
            self.interrupted += not ended
            self.running -= 1

    async def _hold(self) -> None:
        self.held.set()
        try:
            await self._released.wait()
        finally:
            self.held.clear()


class _Answer:
    """Follow one answer: deltas out, the whole or partial reply at the end."""

    def __init__(self, description: ModelDescription) -> None:
        self._description = description
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.script = ScriptedReply()

    def begin(self, scripted: Scripted) -> None:
        """Take what is to be said."""
        if isinstance(scripted, str):
            scripted = ScriptedReply(scripted)
        self.script = ScriptedReply(error=scripted) if isinstance(scripted, ModelError) else scripted

    def deltas(self) -> Iterator[TextDelta | ReasoningDelta | ToolCallDelta]:
        """Return the deltas in order."""
        script = self.script
        for piece in self._pieces(script.reasoning):
            yield ReasoningDelta(piece)
        for piece in self._pieces(script.text):
            yield TextDelta(piece)
        while script.endless and script.text:
            yield TextDelta(script.text)
        for index, call in enumerate(script.calls):
            yield ToolCallDelta(index, _call_id(call, index), call.name)
            for piece in self._pieces(_arguments(call)):
                yield ToolCallDelta(index, arguments=piece)

    def _pieces(self, text: str) -> Iterator[str]:
        size = self.script.piece_chars
        return (text[start : start + size] for start in range(0, len(text), size))

    def note(self, delta: TextDelta | ReasoningDelta | ToolCallDelta) -> None:
        """Remember what was said, for the partial reply."""
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)

    def partial(self) -> ModelReply:
        """Return what was said so far."""
        return self.reply("interrupted")

    def reply(self, state: ReplyState) -> ModelReply:
        """Return the reply in that state."""
        script, whole = self.script, state == "complete"
        return build_reply(
            self._parts(),
            provider=self._description.provider,
            model=self._description.model,
            state=state,
            usage=script.usage if whole else ModelUsage(measured=False),
            finish_reason=(script.finish_reason or ("tool_call" if script.calls else "stop")) if whole else None,
            served_model=script.served_model or self._description.model,
        )

    def _parts(self) -> list[AssistantPart]:
        parts: list[AssistantPart] = []
        reasoning, text = "".join(self._reasoning), "".join(self._text)
        if reasoning or self.script.signature:
            tied = {"signature": self.script.signature} if self.script.signature else None
            parts.append(AssistantPart("thinking", reasoning, tied=tied))
        if text:
            parts.append(AssistantPart("text", text))
        for index, call in enumerate(self.script.calls):
            neutral = neutral_call(_call_id(call, index), call.name, arguments=_arguments(call))
            parts.append(AssistantPart("tool_call", call=neutral))
        return parts


def _call_id(call: ScriptedCall, index: int) -> str:
    return f"call_{index}" if call.call_id is None else call.call_id


def _arguments(call: ScriptedCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)


def texts_of(request: ModelRequest, *, role: str = "user") -> list[str]:
    """Return the texts of the messages of one role in a request, in order: what a script decides by."""
    return [
        "\n".join(part["text"] for part in message["content"] if part["type"] == "text")
        for message in request.messages
        if message["role"] == role
    ]


def results_of(request: ModelRequest) -> list[JsonObject]:
    """Return the tool results behind the newest assistant message of a request; empty when a person spoke last."""
    if not request.messages or request.messages[-1]["role"] != "tool":
        return []
    return list(request.messages[-1]["content"])
