"""The seam between neutral messages and what one provider takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kipu.context.adjustment import Adjustment, AdjustmentKind
from kipu.context.identifier import safe_id, safe_name, short_id
from kipu.context.neutral import Message
from kipu.context.policy import WindowPolicy

CONTINUE = "(continue)"
"""Stands in the user's role where a provider wants a user message and the history has none."""


@dataclass(slots=True)
class Reader:
    """Say for whom a window is rendered, and collect what that changed."""

    policy: WindowPolicy
    provider: str | None = None
    model: str | None = None
    media: Mapping[str, bytes] | None = None
    notes: list[Adjustment] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # ids that may stand once only

    def note(self, kind: AdjustmentKind, detail: str) -> None:
        """Record what a provider's rules changed."""
        self.notes.append(Adjustment(kind, 0, detail))

    def call_id(self, given: str) -> str:
        """Return the id under which a provider is shown a call."""
        shown = short_id(given) if self.policy.strict else safe_id(given)
        if shown != given:
            self.note("id_changed", f"{given!r} is shown as {shown!r}")
        return shown

    def tool_name(self, given: str) -> str:
        """Return the name under which a provider is shown a tool."""
        shown = safe_name(given)
        if shown != given:
            self.note("name_changed", f"{given!r} is shown as {shown!r}")
        return shown


class Shape(Protocol):
    """Turn neutral messages into one provider's.

    Contract:
    - `add` appends the messages of one exchange to `out`, and changes no message that stands there: where it merges, it
      puts a new one in place of the last, and notes it. So a window that grows is rendered by its new exchanges alone (C9).
    - What `add` does depends on the exchange, the role of the last message, and `reader.seen`.
    - `finish` does what depends on being last. It is done on a copy.
    """

    reader: Reader

    def add(self, out: list[Message], messages: Sequence[Message]) -> None:
        """Append one exchange."""
        ...

    def finish(self, out: list[Message]) -> None:
        """Make the end right."""
        ...

    def payload(self, messages: list[Message], system: str | None) -> dict[str, Any]:
        """Return the part of a request body that holds the window."""
        ...
