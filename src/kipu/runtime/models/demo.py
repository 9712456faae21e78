"""A model without a model: rules over the window, so that a chat can be tried with no key and no download."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence

from kipu.ports.model import JsonObject, ModelDescription, ModelEvent, ModelReply, ModelRequest, ModelUsage, TextDelta
from kipu.runtime.models.demo_answers import answer
from kipu.runtime.models.opaque import AssistantPart
from kipu.runtime.models.reply import build_reply
from kipu.runtime.models.reply_stream import ReplyStream

PROVIDER = "kipu-demo"
MODEL = "rules-1"
CONTEXT_WINDOW_TOKENS = 32_000
# A word with the space behind it, or one Chinese character: the sizes in which people see models stream.
PIECE = re.compile(r"[㐀-鿿]|[^\s㐀-鿿]+\s*|\s+")


class DemoModelClient:
    """Answer by rules, the same for the same window, and say so in every answer (contract: `ModelClient`)."""

    def __init__(self, *, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s

    @property
    def name(self) -> str:
        """Return the name it is chosen by."""
        return "demo"

    @property
    def context_window(self) -> int | None:
        """Return a window like that of a small model."""
        return CONTEXT_WINDOW_TOKENS

    def describe(self) -> ModelDescription:
        """Return the description, which says that this is no AI."""
        return ModelDescription(
            name=self.name,
            provider=PROVIDER,
            model=MODEL,
            context_window_tokens=CONTEXT_WINDOW_TOKENS,
            supports_tools=False,
            is_ai=False,
            notice="demo model, no AI: it answers by rules. For a real one set OPENAI_API_KEY or ANTHROPIC_API_KEY, or --model.",
        )

    def stream(self, request: ModelRequest) -> ReplyStream:
        """Return the answer in small pieces."""
        said: list[str] = []
        seen = sum(len(text) for message in request.messages for text in texts(message))

        def reply(*, whole: bool) -> ModelReply:
            usage = ModelUsage(seen // 4, sum(map(len, said)) // 4, measured=False)
            return build_reply(
                [AssistantPart("text", "".join(said))],
                provider=PROVIDER,
                model=MODEL,
                state="complete" if whole else "interrupted",
                usage=usage,
                finish_reason="stop" if whole else None,
                served_model=MODEL,
            )

        async def events() -> AsyncGenerator[ModelEvent, None]:
            for piece in PIECE.findall(answer(conversation(request.messages))):
                await asyncio.sleep(self._delay_s)
                said.append(piece)
                yield TextDelta(piece)
            yield reply(whole=True)

        return ReplyStream(events(), lambda: reply(whole=False))

    async def aclose(self) -> None:
        """Do nothing: it holds nothing."""


def texts(message: JsonObject) -> list[str]:
    """Return the texts of a neutral message."""
    return [part["text"] for part in message["content"] if part["type"] == "text"]


def conversation(window: Sequence[JsonObject]) -> list[tuple[str, str]]:
    """Return (role, text) of what people and models said; media count as their names."""
    said: list[tuple[str, str]] = []
    for message in window:
        if message["role"] in {"user", "assistant"}:
            media = [
                f"[{part.get('name') or part['media_type']}]" for part in message["content"] if part["type"] == "media"
            ]
            said.append((message["role"], "\n".join([*texts(message), *media])))
    return said
