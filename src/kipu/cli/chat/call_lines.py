"""A tool call and its result in one line each. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kipu.interop.printable import printable, printable_line

if TYPE_CHECKING:
    from kipu.events.conversation import ToolResultEvent

LINE_CHARACTERS = 160
SHOWN_LINES = 3
# What says most of a call, by the names that arguments have.
_SAYING = ("command", "path", "pattern", "query", "task", "process_id", "digest")
_CHANGED = "[A person changed"  # said to the model; whoever changed it knows
_LISTING = frozenset(
    {"read_file", "list_dir", "search_files", "read_result", "session_search"}
)  # their lines say little here
_SYNTHETIC = {
    "interrupted": "interrupted: nobody knows how far it came",
    "cancelled": "cancelled",
    "skipped": "skipped: a new message came first",
    "denied": "not allowed",
}


def call_line(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what a call does: the tool and what it is about."""
    saying = next((arguments[key] for key in _SAYING if isinstance(arguments.get(key), str)), None)
    if saying is None:
        saying = json.dumps(dict(arguments), ensure_ascii=False, default=str) if arguments else ""
    extra = " (in the background)" if arguments.get("background") is True else ""
    return shortened(f"{name} {printable_line(saying)}".rstrip() + extra)


def result_line(event: ToolResultEvent) -> str:
    """Return how a call ended: its first line and how much more there is."""
    if event.synthetic is not None:
        said = str(event.result or "")
        told = _SYNTHETIC[event.synthetic]
        return shortened(printable_line(said)) if event.synthetic == "denied" and said else told
    lines = result_text(event).splitlines()
    if lines and lines[0].startswith(_CHANGED):
        lines = lines[1:]
    if event.tool_name in _LISTING and not event.is_error and len(lines) > 1:
        return f"{len(lines)} lines"
    more = len(lines) - 1
    first = shortened(printable_line(lines[0])) if lines else "(nothing)"
    return f"{first}  (+{more} lines)" if more > 0 else first


def result_text(event: ToolResultEvent) -> str:
    """Return the whole result as text."""
    value = event.result
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, indent=1)
    return printable(text).strip()


def last_lines(text: str, count: int = SHOWN_LINES, *, width: int = LINE_CHARACTERS) -> list[str]:
    """Return the last lines of a running call's output; of a line that was drawn over only what was drawn last."""
    lines = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    kept = [printable_line(line) for line in lines if line.strip()]
    return [shortened(line, width) for line in kept[-count:]]


def shortened(line: str, width: int = LINE_CHARACTERS) -> str:
    """Return at most `width` characters of a line."""
    return line if len(line) <= width else line[: width - 1] + "…"
