"""What a caller gets: messages, what was changed for them, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kipu.context.adjustment import Adjustment
from kipu.context.anthropic import AnthropicShape
from kipu.context.canonical import GrowingDigest
from kipu.context.copying import KeptMessages, copy_of
from kipu.context.exchange import Exchange
from kipu.context.gemini import GeminiShape
from kipu.context.neutral import Message, NeutralRenderer
from kipu.context.openai_chat import OpenAIChatShape
from kipu.context.openai_responses import OpenAIResponsesShape
from kipu.context.plain import NeutralShape
from kipu.context.shape import Reader, Shape
from kipu.errors import InvalidQueryError

RENDERER_VERSION = 1

SHAPES: Mapping[str, Callable[[Reader], Shape]] = MappingProxyType(
    {
        "neutral": NeutralShape,
        "openai_chat": OpenAIChatShape,
        "openai_responses": OpenAIResponsesShape,
        "anthropic": AnthropicShape,
        "gemini": GeminiShape,
    }
)
"""Target name → its shape in the present renderer version."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """Hold one window as a model is shown it. Everything in it belongs to the caller, who may change it (B34).

    `messages` is the list of the target's messages (for Responses: its input items); `payload` is the part of a request
    body that holds the same list and, where the target keeps it apart, the instruction.
    """

    target: str
    messages: list[Message]
    payload: dict[str, Any]
    adjustments: list[Adjustment]
    tokens: int
    message_count: int


@dataclass(slots=True)
class Compiled:
    """Keep what was rendered of the exchanges that cannot change any more, for one reader."""

    shape: Shape
    neutral: NeutralRenderer
    done: int = 0
    messages: list[Message] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # where the messages of each exchange begin
    hashed: GrowingDigest = field(default_factory=GrowingDigest)
    kept: KeptMessages = field(default_factory=KeptMessages)  # all but the last: a shape may put another in its place

    def take(self, exchanges: Sequence[Exchange], *, until: int) -> None:
        """Render the exchanges before `until` for good."""
        if until <= self.done:
            return
        for exchange in exchanges[self.done : until]:
            self.starts.append(len(self.messages))
            self.shape.add(self.messages, self.neutral.render(exchange))
        self.done = until
        self.kept.extend(self.messages[len(self.kept) : -1])

    def forget(self, count: int) -> bool:
        """Let go of the first `count` exchanges; return False where what follows might now look otherwise.

        A shape looks at nothing but the role of the last message and what was noted or seen, and it notes every merging.
        So what stands behind a user message stays as it is behind the head, which had one behind it before.
        """
        reader = self.shape.reader
        if self.done <= count or reader.notes or reader.seen:
            return False
        first, begin = self.starts[0], self.starts[count]
        del self.messages[first:begin]
        self.kept.forget(first, begin)
        self.starts = [start - begin + first for start in self.starts[count:]]
        self.done -= count
        self.hashed.forget(first, begin)
        return True

    def start(self, messages: Sequence[Message]) -> None:
        """Render the instruction and the summary."""
        for message in messages:
            self.shape.add(self.messages, [message])
        self.kept.extend(self.messages[:-1])

    def finished(
        self, exchanges: Sequence[Exchange], *, shared: bool = False
    ) -> tuple[list[Message], list[Adjustment]]:
        """Return copies of everything compiled, followed by the exchanges that may still change.

        `shared` messages are not copied but for the last: nothing ever changes the others, nor may whoever gets them.
        """
        tail, adjustments = self._end(exchanges)
        settled = self.messages[:-1] if shared else self.kept.copies()
        return [*settled, *map(copy_of, tail)], adjustments

    def digest(self, exchanges: Sequence[Exchange]) -> str:
        """Return the digest of what `finished` returns copies of."""
        tail, _ = self._end(exchanges)
        return self.hashed.of(self.messages[:-1], tail)

    def _end(self, exchanges: Sequence[Exchange]) -> tuple[list[Message], list[Adjustment]]:
        """Return the last message compiled and those of the exchanges that may still change, and all adjustments."""
        reader = self.shape.reader
        kept, seen = len(reader.notes), set(reader.seen)
        tail = self.messages[-1:]
        for exchange in exchanges[self.done :]:
            self.shape.add(tail, self.neutral.render(exchange))
        self.shape.finish(tail)
        adjustments = reader.notes.copy()
        del reader.notes[kept:]
        reader.seen = seen
        return tail, adjustments


def compile_for(target: str, reader: Reader) -> Compiled:
    """Return an empty compilation for a target.

    Raises:
        InvalidQueryError: there is no such target.
    """
    make = SHAPES.get(target)
    if make is None:
        raise InvalidQueryError(reason=f"there is no target {target!r}, only {', '.join(sorted(SHAPES))}")
    neutral = NeutralRenderer(reader.policy, reader.provider, reader.model, reader.notes)
    return Compiled(make(reader), neutral)
