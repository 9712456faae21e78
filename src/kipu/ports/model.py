"""The seam to language models: a neutral window goes in, deltas come out, one reply ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]
ReplyState: TypeAlias = Literal["complete", "interrupted"]
BlobReader: TypeAlias = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Say what one model call is shown.

    `messages` are neutral messages (docs/formats, "window"), unchanged from what the digest of C6 was taken over.
    `settings` are neutral too: `max_tokens`, `temperature`, `top_p`, `top_k`, `seed`, `stop`, `reasoning` (effort),
    `timeout_s`, `parallel_tool_calls`, `tool_choice`, and `provider` (an object handed to the provider's client as it is).
    A tool is `{"name": str, "description"?: str, "parameters": JSON schema, "strict"?: bool}`.
    `read_blob` gives the bytes of a media part that names a blob.
    """

    model: str
    messages: Sequence[JsonObject]
    settings: JsonObject = field(default_factory=dict)
    tools: Sequence[JsonObject] = ()
    read_blob: BlobReader | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Carry the next piece of visible answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Carry the next piece of reasoning that the provider shows."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """Carry the next piece of a tool call; `index` tells parallel calls apart, whatever their ids say.

    The first delta of a call has its `name`; `arguments` is a piece of JSON text, not yet valid by itself.
    """

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Count what a call cost. Cached tokens are part of `input_tokens`, reasoning tokens of `output_tokens`.

    `measured` is False where the provider did not say: the numbers are then a lower bound.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    measured: bool = True

    def as_json(self) -> dict[str, int]:
        """Return the counts as an event keeps them, without those that are zero (the two totals always)."""
        extra = {
            "cached_input_tokens": self.cached_input_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }
        totals = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return totals | {name: count for name, count in extra.items() if count}


@dataclass(frozen=True, slots=True)
class ModelReply:
    """Hold one whole answer, or what there was of it when it was interrupted.

    `content` is the neutral assistant message's content; `text`, `reasoning` and `tool_calls` are views of it.
    `provider` and `model` are the names as configured, for they decide to whom `opaque` may go back; `served_model` is
    what the provider says it ran. `opaque` is JSON that only this client reads; it must come back byte for byte.
    """

    content: tuple[JsonObject, ...]
    provider: str
    model: str
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[JsonObject, ...] = ()
    usage: ModelUsage = field(default_factory=ModelUsage)
    finish_reason: str | None = None
    served_model: str | None = None
    response_id: str | None = None
    opaque: JsonObject | None = None
    state: ReplyState = "complete"


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | ModelReply


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """Say which model this is, for people and for the window.

    `context_window_tokens` is a hint, None where nobody knows. `account` tells two keys or endpoints of one provider apart
    without revealing either. `notice` is shown to people before its first answer.
    """

    name: str
    provider: str
    model: str
    endpoint: str | None = None
    account: str | None = None
    context_window_tokens: int | None = None
    supports_tools: bool = True
    is_ai: bool = True
    notice: str | None = None


class ModelStream(Protocol):
    """Iterate over one answer.

    Contract:
    - Yields deltas, then exactly one `ModelReply`, then ends. Nothing is yielded after an error (A35).
    - The texts of all `TextDelta`s, joined, are the reply's `text`; likewise reasoning and each call's arguments.
    - At any moment, also after an error or a cancelled task, `partial()` is what has arrived so far, in state
      `interrupted` (C5): it never contains half a tool call (A2, A24), and reasoning without its seal is not sent back.
    - `interrupt()`, from any task, ends the iteration with that partial reply. It is idempotent, and does nothing to a
      finished answer.
    - `aclose()` frees the connection. Whoever leaves the iteration early calls it, or uses `async with`.

    Raises: `ModelError` subclasses only, besides cancellation.
    """

    def __aiter__(self) -> ModelStream:
        """Return itself."""
        ...

    async def __anext__(self) -> ModelEvent:
        """Return the next event."""
        ...

    async def __aenter__(self) -> Self:
        """Return itself."""
        ...

    async def __aexit__(self, *details: object) -> None:
        """Close."""
        ...

    def partial(self) -> ModelReply:
        """Return what has arrived so far; the whole reply once it is complete."""
        ...

    def interrupt(self) -> None:
        """End the iteration with the partial reply."""
        ...

    async def aclose(self) -> None:
        """Free the connection."""
        ...


class ModelClient(Protocol):
    """Ask one language model.

    Contract:
    - `stream` sends the window it was given: no message added, dropped, merged away or reworded, except what the provider
      has no place for. The same request gives the same body (C6, C9).
    - Opaque reasoning goes back byte for byte to the provider, model and account that made it, and to nobody else (C28).
    - It retries nothing: whether and when is the caller's decision, who knows the session. Its errors say what they know:
      `retryable`, `retry_after_s`, and whether the request itself was refused.
    - Every tool call of an answer is in the reply, in order, also with repeated ids or arguments that do not parse (`raw`).
    - A client may serve many streams at once; cancelling one frees its connection and touches no other (A41).
    - `aclose` may be called twice.

    Raises: `ModelError` subclasses from the stream, `ConfigurationError` for settings it does not know.
    """

    @property
    def name(self) -> str:
        """Return the name it was chosen by, such as "anthropic:claude-sonnet-5"."""
        ...

    @property
    def context_window(self) -> int | None:
        """Return the model's window in tokens, or None where nobody knows."""
        ...

    def describe(self) -> ModelDescription:
        """Return what people and windows need to know."""
        ...

    def stream(self, request: ModelRequest) -> ModelStream:
        """Return the answer as it comes; nothing is sent before the first event is asked for."""
        ...

    async def aclose(self) -> None:
        """Close connections and give back memory."""
        ...
