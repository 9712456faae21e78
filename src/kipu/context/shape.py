"""The seam between neutral messages and what one provider takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
      puts a new one in place of the last. So a window that grows is rendered by its new exchanges alone (C9).
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


Maker = Callable[[], Message]


def maker_of(message: Message) -> Maker:
    """Return what makes copies of `message`, so that callers may change what they get (B34), as cheaply as its form allows."""
    if all(type(value) is str or value is None for value in message.values()):
        return message.copy
    if message.keys() == {"role", "content"} and type(message["content"]) is list and len(message["content"]) == 1:
        role, block = message["role"], message["content"][0]
        if all(type(value) is str for value in block.values()):
            return lambda: {"role": role, "content": [block.copy()]}
        made = block_maker(block)
        return lambda: {"role": role, "content": [made()]}
    return lambda: copy_json(message)


def block_maker(block: Message) -> Maker:
    """Return what makes copies of one content block."""
    content = block.get("content")
    if type(content) is list and len(content) == 1 and all(type(value) is str for value in content[0].values()):
        inner = content[0]
        return lambda: {**block, "content": [inner.copy()]}
    return lambda: copy_json(block)


def copy_json(value: Any) -> Any:
    """Return a copy of JSON data that shares nothing that can be changed."""
    kind = type(value)
    if kind is dict:
        return {name: item if type(item) is str else copy_json(item) for name, item in value.items()}
    if kind is list:
        return [item if type(item) is str else copy_json(item) for item in value]
    return value
