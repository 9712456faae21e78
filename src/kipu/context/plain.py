"""The neutral target: neutral messages as they are, in the stricter renderings with one role after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kipu.context.neutral import Message, merged, same_role
from kipu.context.shape import CONTINUE, Reader


class NeutralShape:
    """Leave neutral messages alone but for the first; where asked to be strict, let roles alternate and a user message end."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def add(self, out: list[Message], messages: Sequence[Message]) -> None:
        """Append one exchange, merged with what has the same role before it where roles must alternate."""
        strict = self.reader.policy.strict
        for message in messages:
            last = out[-1]["role"] if out else "system"
            if message["role"] == "assistant" and (last == "system" or (strict and last == "assistant")):
                self.reader.note("placeholder_added", "an assistant message needs a user message before it")
                out.append({"role": "user", "content": [{"type": "text", "text": CONTINUE}]})
            if strict and same_role(out, message):
                self.reader.note("roles_merged", f"two {message['role']} messages")
                out[-1] = merged(out[-1], message)
            else:
                out.append(message)

    def finish(self, out: list[Message]) -> None:
        """End with a user message or results where asked to be strict: some models refuse to go on with an answer."""
        if self.reader.policy.strict and out and out[-1]["role"] == "assistant":
            self.reader.note("placeholder_added", "the last message is an answer")
            out.append({"role": "user", "content": [{"type": "text", "text": CONTINUE}]})

    def payload(self, messages: list[Message], system: str | None) -> dict[str, Any]:
        """Return the messages under their name; the instruction is the first of them."""
        return {"messages": messages}
