"""A model without a model: rules over the window, so that a chat can be tried with no key and no download.

Where tools are offered it really uses them, for what is asked in one of its forms (`demo_requests`); it does not think.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field

from kipu.ports.model import (
    JsonObject,
    ModelDescription,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    TextDelta,
    ToolCallDelta,
)
from kipu.runtime.models.demo_answers import RECALL, answer, is_chinese, labelled
from kipu.runtime.models.demo_plan import plan_of
from kipu.runtime.models.demo_report import doing_text, report_text
from kipu.runtime.models.demo_requests import requests_in
from kipu.runtime.models.demo_task import RECALLED, Call, Task, arguments_text, task_of
from kipu.runtime.models.opaque import AssistantPart
from kipu.runtime.models.reply import build_reply, neutral_call
from kipu.runtime.models.reply_stream import ReplyStream

PROVIDER = "kipu-demo"
MODEL = "rules-1"
CONTEXT_WINDOW_TOKENS = 32_000
# A word with the space behind it, or one Chinese character: the sizes in which people see models stream.
PIECE = re.compile(r"[㐀-鿿]|[^\s㐀-鿿]+\s*|\s+")
ARGUMENT_CHARS = 24


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
            supports_tools=True,
            is_ai=False,
            notice="demo model, no AI: it answers by rules. For a real one set OPENAI_API_KEY or ANTHROPIC_API_KEY, or --model.",
        )

    def stream(self, request: ModelRequest) -> ReplyStream:
        """Return the answer in small pieces, then its calls."""
        said: list[str] = []
        seen = sum(len(text) for message in request.messages for text in texts(message))

        def reply(decided: Decision | None) -> ModelReply:
            calls = decided.neutral_calls() if decided is not None else []
            arguments = sum(len(str(call.get("input"))) for call in calls)
            return build_reply(
                [AssistantPart("text", "".join(said)), *(AssistantPart("tool_call", call=call) for call in calls)],
                provider=PROVIDER,
                model=MODEL,
                state="interrupted" if decided is None else "complete",
                usage=ModelUsage(seen // 4, (sum(map(len, said)) + arguments) // 4, measured=False),
                finish_reason=None if decided is None else "tool_call" if calls else "stop",
                served_model=MODEL,
            )

        async def events() -> AsyncGenerator[ModelEvent, None]:
            decided = decide(request)
            for piece in PIECE.findall(decided.text):
                await asyncio.sleep(self._delay_s)
                said.append(piece)
                yield TextDelta(piece)
            for delta in decided.call_deltas():
                await asyncio.sleep(self._delay_s)
                yield delta
            yield reply(decided)

        return ReplyStream(events(), lambda: reply(None))

    async def aclose(self) -> None:
        """Do nothing: it holds nothing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the demo model says and calls; ids count all calls of the window, so that none stands there twice."""

    text: str
    calls: Sequence[Call] = field(default_factory=tuple)
    first_number: int = 1

    def neutral_calls(self) -> list[JsonObject]:
        """Return the calls as a reply has them."""
        return [
            neutral_call(self._id(index), call.name, arguments=arguments_text(call))
            for index, call in enumerate(self.calls)
        ]

    def call_deltas(self) -> Iterator[ToolCallDelta]:
        """Return the calls in the pieces in which they are streamed."""
        for index, call in enumerate(self.calls):
            yield ToolCallDelta(index, self._id(index), call.name)
            text = arguments_text(call)
            for start in range(0, len(text), ARGUMENT_CHARS):
                yield ToolCallDelta(index, arguments=text[start : start + ARGUMENT_CHARS])

    def _id(self, index: int) -> str:
        return f"demo_{self.first_number + index}"


def decide(request: ModelRequest) -> Decision:
    """Return what comes next in this window: a pure function of the request (C6)."""
    offered = [tool["name"] for tool in request.tools]
    task = task_of(request.messages) if offered else Task("")
    requests = [] if RECALL.search(task.text) else requests_in(task.text, offered)
    chinese = is_chinese(task.text)
    if requests:
        plan = plan_of(requests, task.done, offered=offered)
        if plan.calls:
            text = labelled(doing_text(plan.calls, chinese=chinese), chinese=chinese)
            return Decision(text, plan.calls, task.calls_before + 1)
        return Decision(labelled(report_text(task.done, plan.findings, chinese=chinese), chinese=chinese))
    return Decision(answer(conversation(request.messages), has_tools=bool(offered)))


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
            parts = [*(text for text in texts(message) if not text.startswith(RECALLED)), *media]
            if parts:
                said.append((message["role"], "\n".join(parts)))
    return said
