"""What of a call the log does not have: arguments with a secret in them, which run as the model wrote them and are kept without."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kipu.events.conversation import ToolCallEvent, ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.ports.tool import JsonObject
from kipu.session.turn_story import OpenCall

_MARK = re.compile(r"\[redacted:[a-z0-9-]{1,60}(?::[0-9a-f]{12})?\]")


class Withheld:
    """Hold the arguments of open calls as they were made, in memory only, until each call has its result.

    What another process made, or this one before it was started again, is not here: such a call has only what the log keeps.
    """

    def __init__(self) -> None:
        self._arguments: dict[str, JsonObject] = {}

    def take(self, made: Sequence[SessionEvent], stored: Sequence[SessionEvent]) -> None:
        """Take in what was appended: keep what was stored otherwise than it was made, forget what has ended."""
        for before, after in zip(made, stored, strict=True):
            if isinstance(before, ToolCallEvent) and isinstance(after, ToolCallEvent):
                if after.normalised and before.tool_input != after.tool_input and marks_in(after.tool_input):
                    self._arguments[after.tool_call_id] = before.tool_input
            elif isinstance(after, ToolResultEvent):
                self._arguments.pop(after.tool_call_id, None)

    def arguments(self, call: OpenCall) -> JsonObject:
        """Return what the model wrote, as far as it is known here."""
        return self._arguments.get(call.id, call.call.tool_input)


def marks_in(value: Any) -> Counter[str]:
    """Return what in a value stands for secrets that were taken out, and how often."""
    found: Counter[str] = Counter()
    if isinstance(value, str):
        found.update(_MARK.findall(value))
    elif isinstance(value, Mapping):
        # What an edit looks for must be in the file as it is; what it puts there may hold as much of it.
        old = marks_in(value["old_text"]) if "old_text" in value and "new_text" in value else Counter()
        for name, item in value.items():
            found += marks_in(item) if name != "old_text" else Counter()
        found -= old
    elif isinstance(value, list | tuple):
        for item in value:
            found += marks_in(item)
    return found


def hidden_words(made: JsonObject, kept: JsonObject) -> str:
    """Return what a person is to know who is asked about a call that is shown without its secrets."""
    if made == kept or not marks_in(kept):
        return ""
    hidden = _signs_in(made) - _signs_in(kept)
    more = f", and in them signs that a shell acts on: {' '.join(sorted(hidden))}" if hidden else ""
    return f" (secrets in the arguments are not shown{more})"


def _signs_in(value: Any) -> Counter[str]:
    return Counter(sign for sign in str(value) if sign in "`$;|&<>()")


def refusal_of(arguments: JsonObject) -> str | None:
    """Return why a call that would change something is not run with these arguments, None where nothing is against it."""
    marks = marks_in(arguments)
    if not marks:
        return None
    return (
        f"Not run: the arguments hold {', '.join(sorted(marks))}, which stands for a secret that is not kept in sessions and not "
        "shown to models. It would be written or sent in the secret's place. Leave the part with the secret as it is (edit only the "
        "lines around it), use a variable of the environment that holds it, or ask the person."
    )
