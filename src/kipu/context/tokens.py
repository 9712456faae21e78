"""A token estimate from the kinds of bytes that a text is made of: no tables, no download, microseconds."""

from __future__ import annotations

from kipu.context.content import media_size, memory_text, parts_of, result_parts, result_text, value_text
from kipu.events.boundary import CompactionEvent
from kipu.events.content import MediaPart
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    MemoryRecalledEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.ports.tokens import TokenCounter

MESSAGE_TOKENS = 4
"""What a message costs beside its text."""

MEDIA_TOKENS = 1_600
"""What an image costs at the size that providers scale it to; other media at least as much by their bytes."""


_SAID = (UserMessageEvent, AgentMessageEvent)


def _kind(byte: int) -> str:
    if byte < 128:
        char = chr(byte)
        kinds = {"l": char.islower(), "u": char.isupper(), "d": char.isdigit(), "s": char == " ", "n": char in "\n\r\t"}
        return next((kind for kind, is_it in kinds.items() if is_it), "p")
    return "c" if byte < 0xC0 else "2" if byte < 0xE0 else "3" if byte < 0xF0 else "4"


_KINDS = bytes(ord(_kind(byte)) for byte in range(256))


class EstimateCounter:
    """Estimate tokens within a few percent, upwards where it errs on JSON, logs, Chinese and base64."""

    @property
    def name(self) -> str:
        """Return "estimate-1"; another fit gets another number."""
        return "estimate-1"

    def count(self, text: str) -> int:
        """Return the estimated tokens of `text`; at least one for any text."""
        if not text:
            return 0
        kinds = text.encode("utf-8", "replace").translate(_KINDS)
        count = kinds.count
        # Counting costs by the match: most bytes are lower-case letters, so these are what the others leave.
        upper, digits, spaces, breaks, marks = count(b"u"), count(b"d"), count(b"s"), count(b"n"), count(b"p")
        lower = len(kinds) - upper - digits - spaces - breaks - marks
        # Fitted to o200k on English, code, Chinese, JSON, logs and base64 (docs/concepts/windows.md), those that a plain
        # bytes/4 undercounts weighed upwards.
        total = 0.664 * digits + 0.549 * spaces + 1.23 * breaks + 0.902 * marks
        if len(kinds) != len(text):
            two, three, four = count(b"2"), count(b"3"), count(b"4")
            lower -= two + three + four + count(b"c")
            total += 0.179 * two + 0.719 * three + 2.5 * four
        total += 0.105 * lower
        # Pairs count where one kind of byte meets another, which is where tokens end. Looking for two bytes takes three
        # times as long as for one, and most texts lack some kind.
        if upper:
            total += 2.028 * count(b"lu") + 1.208 * count(b"uu")
        if digits:
            total += 0.841 * count(b"ld")
        if marks:
            total -= 1.061 * count(b"pp")
        if spaces:
            total -= 0.994 * count(b"ss")
        # No tokenizer makes one token of more than this many bytes of running text.
        return max(1, round(total), len(kinds) // 32)


def event_tokens(event: SessionEvent, counter: TokenCounter) -> int:
    """Return what an event costs in a window; 0 for events that a model is not shown."""
    if isinstance(event, _SAID):
        reasoning = event.reasoning if isinstance(event, AgentMessageEvent) else None
        opaque = _opaque_tokens(event)
        return MESSAGE_TOKENS + _parts_tokens(event, counter) + (counter.count(reasoning) if reasoning else 0) + opaque
    if isinstance(event, ToolCallEvent):
        given = event.raw if event.raw is not None else value_text(event.tool_input)
        return MESSAGE_TOKENS + counter.count(event.tool_name) + counter.count(given) + _opaque_tokens(event)
    if isinstance(event, ToolResultEvent):
        return MESSAGE_TOKENS + _parts_tokens(event, counter)
    if isinstance(event, InstructionEvent):
        return MESSAGE_TOKENS + counter.count(event.content)
    if isinstance(event, MemoryRecalledEvent):
        return MESSAGE_TOKENS + counter.count(memory_text(event))
    if isinstance(event, CompactionEvent):
        return MESSAGE_TOKENS + counter.count(event.summary)
    return 0


def _parts_tokens(event: UserMessageEvent | AgentMessageEvent | ToolResultEvent, counter: TokenCounter) -> int:
    if isinstance(event, ToolResultEvent):
        if not isinstance(event.result, list):
            return counter.count(result_text(event))
        parts = result_parts(event)
    elif isinstance(event.content, str):
        return counter.count(event.content)
    else:
        parts = parts_of(event.content)
    return sum(_media_tokens(part) if isinstance(part, MediaPart) else counter.count(part.text) for part in parts)


def _media_tokens(part: MediaPart) -> int:
    if part.media_type.startswith("image/"):
        return MEDIA_TOKENS
    return max(MEDIA_TOKENS, media_size(part) // 32)


def _opaque_tokens(event: SessionEvent) -> int:
    """Return a bound for sealed reasoning, which is mostly base64."""
    mark = event.provider if isinstance(event, AgentMessageEvent | ToolCallEvent) else None
    if mark is None or mark.opaque is None:
        return 0
    return len(value_text(mark.opaque)) // 4
