"""What a stretch of history says, as text: whole for a model to summarise, or extracted where there is no model. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from kipu.events.content import text_of
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.event import SessionEvent

RESULT_CHARACTERS = 1_500
ARGUMENT_CHARACTERS = 600
LINE_CHARACTERS = 240
MOST_LINES = 40
PATH_NAMES = ("path", "file", "file_path")


def transcript(events: Iterable[SessionEvent]) -> list[str]:
    """Return one paragraph per message, call and result, long ones by head and tail."""
    paragraphs: list[str] = []
    for event in events:
        if isinstance(event, UserMessageEvent):
            paragraphs.append(f"USER: {text_of(event.content)}")
        elif isinstance(event, AgentMessageEvent):
            if text := text_of(event.content).strip():
                paragraphs.append(f"ASSISTANT: {text}")
        elif isinstance(event, ToolCallEvent):
            paragraphs.append(f"CALL {event.tool_name}: {_cut(_json(event.tool_input), ARGUMENT_CHARACTERS)}")
        elif isinstance(event, ToolResultEvent):
            kind = "ERROR" if event.is_error else "RESULT"
            result = event.result if isinstance(event.result, str) else _json(event.result)
            paragraphs.append(f"{kind} {event.tool_name or ''}: {_cut(result, RESULT_CHARACTERS)}")
    return paragraphs


def chunks(paragraphs: Sequence[str], *, max_characters: int) -> list[str]:
    """Return the paragraphs joined into texts of at most `max_characters`, each paragraph cut to that if need be."""
    found: list[str] = []
    current: list[str] = []
    size = 0
    for paragraph in paragraphs:
        text = _cut(paragraph, max_characters)
        if current and size + len(text) + 2 > max_characters:
            found.append("\n\n".join(current))
            current, size = [], 0
        current.append(text)
        size += len(text) + 2
    return [*found, "\n\n".join(current)] if current else found


def extract_summary(events: Sequence[SessionEvent], *, previous: str | None = None) -> str:
    """Return what was asked, what was touched and what was said last, by rules: the summary where no model is there."""
    asked = [_line(text_of(event.content)) for event in events if isinstance(event, UserMessageEvent)]
    said = [_line(text_of(event.content)) for event in events if isinstance(event, AgentMessageEvent)]
    calls = [event for event in events if isinstance(event, ToolCallEvent)]
    paths = _distinct(str(call.tool_input[name]) for call in calls for name in PATH_NAMES if call.tool_input.get(name))
    commands = _distinct(str(call.tool_input["command"]) for call in calls if call.tool_input.get("command"))
    failed = [event for event in events if isinstance(event, ToolResultEvent) and event.is_error]
    parts = ["Summary by rules, no model was asked."]
    if previous:
        parts.append(f"Before that:\n{_cut(previous, 4 * RESULT_CHARACTERS)}")
    parts += _list("The person asked", [text for text in asked if text])
    parts += _list("Files in calls", paths)
    parts += _list("Commands", [_line(command) for command in commands])
    parts += _list("Calls that failed", [f"{event.tool_name}: {_line(str(event.result))}" for event in failed])
    parts += _list("Last answers", [text for text in said if text][-3:])
    return "\n\n".join(parts)


def _list(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    shown = list(lines[-MOST_LINES:])
    left_out = len(lines) - len(shown)
    more = [f"- ({left_out} earlier ones left out)"] if left_out else []
    return ["\n".join([f"{title}:", *more, *(f"- {line}" for line in shown)])]


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _line(text: str) -> str:
    return _cut(" ".join(text.split()), LINE_CHARACTERS)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]} […] {text[len(text) - (limit - head) :]}"


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()
