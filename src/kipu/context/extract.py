"""What a stretch of history says, as text: whole for a model to summarise, or extracted where there is no model. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kipu.context.content import Parts, media_size, parts_of, result_parts, value_text
from kipu.context.neutral import media_text
from kipu.events.content import TextPart
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
    tools: dict[str, str] = {}
    for event in events:
        if isinstance(event, UserMessageEvent):
            paragraphs.append(f"USER: {_text(parts_of(event.content))}")
        elif isinstance(event, AgentMessageEvent):
            if text := _text(parts_of(event.content)).strip():
                paragraphs.append(f"ASSISTANT: {text}")
        elif isinstance(event, ToolCallEvent):
            tools[event.tool_call_id] = event.tool_name
            given = event.raw if event.raw is not None else value_text(event.tool_input)
            paragraphs.append(f"CALL {event.tool_name}: {_cut(given, ARGUMENT_CHARACTERS)}")
        elif isinstance(event, ToolResultEvent):
            kind = "ERROR" if event.is_error else "RESULT"
            result = _cut(_text(result_parts(event)), RESULT_CHARACTERS)
            paragraphs.append(f"{kind} {_tool_of(event, tools)}: {result}")
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


def extract_summary(events: Sequence[SessionEvent], *, max_characters: int, previous: str | None = None) -> str:
    """Return what was asked, what was touched and what was said last, by rules: the summary where no model is there.

    It has about `max_characters` at most: where there is more to say, something of each kind is said.
    """
    asked = [_line(_text(parts_of(event.content))) for event in events if isinstance(event, UserMessageEvent)]
    said = [_line(_text(parts_of(event.content))) for event in events if isinstance(event, AgentMessageEvent)]
    calls = [event for event in events if isinstance(event, ToolCallEvent)]
    paths = _distinct(str(call.tool_input[name]) for call in calls for name in PATH_NAMES if call.tool_input.get(name))
    commands = _distinct(str(call.tool_input["command"]) for call in calls if call.tool_input.get("command"))
    tools = {call.tool_call_id: call.tool_name for call in calls}
    failed = [event for event in events if isinstance(event, ToolResultEvent) and event.is_error]
    errors = [f"{_tool_of(event, tools)}: {_line(_text(result_parts(event)))}" for event in failed]
    parts = ["Summary by rules, no model was asked."]
    if previous:
        parts.append(f"Before that:\n{_cut(previous, 4 * RESULT_CHARACTERS)}")
    parts += _list("The person asked", [text for text in asked if text])
    parts += _list("Files in calls", [_line(path) for path in paths])
    parts += _list("Commands", [_line(command) for command in commands])
    parts += _list("Calls that failed", errors)
    parts += _list("Last answers", [text for text in said if text][-3:])
    if sum(map(len, parts)) > max_characters:
        parts = [_cut(part, max_characters // len(parts)) for part in parts]
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


def _text(parts: Parts) -> str:
    """Return parts as one text, media by what they are."""
    return "\n".join(
        part.text if isinstance(part, TextPart) else media_text(part.media_type, media_size(part), name=part.name)
        for part in parts
    )


def _tool_of(result: ToolResultEvent, tools: Mapping[str, str]) -> str:
    """Return which tool gave a result: what says so is the call, where the result does not."""
    return result.tool_name or tools.get(result.tool_call_id, "")
