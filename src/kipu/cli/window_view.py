"""A window as people and programs read it: messages, tokens, adjustments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from kipu.context.rendering import Rendering
    from kipu.manager.session import Session

_LISTS = ("messages", "input", "contents")  # where a target's body has the messages


def window_json(session: Session, rendering: Rendering) -> dict[str, Any]:
    """Return a window with everything that is known of it."""
    return {
        "session_id": session.session_id,
        "target": rendering.target,
        "from": session.history.window.start_seq,
        "to": session.history.last_seq,
        "policy": session.policy.to_json(),
        "tokens": rendering.tokens,
        "message_count": rendering.message_count,
        "payload": rendering.payload,
        "messages": rendering.messages,
        "adjustments": [adjustment.to_json() for adjustment in rendering.adjustments],
    }


def window_lines(session: Session, rendering: Rendering) -> Iterator[str]:
    """Yield a window line by line: every message, then what it costs and what was changed for it."""
    for name, value in rendering.payload.items():
        if value is not rendering.messages and name not in _LISTS:  # the instruction, where a target keeps it apart
            yield f"{name}: {value if isinstance(value, str) else orjson.dumps(value).decode()}"
    for message in rendering.messages:
        yield from message_lines(message)
    policy = session.policy
    yield (
        f"{rendering.message_count} messages, {rendering.tokens} of {policy.max_tokens} tokens, "
        f"from event {session.history.window.start_seq} to {session.history.last_seq}, for {rendering.target}"
    )
    if not rendering.adjustments:
        yield "nothing was adjusted"
    for adjustment in rendering.adjustments:
        place = f" at event {adjustment.seq}" if adjustment.seq else ""
        yield f"adjusted: {adjustment.kind}{place} {adjustment.detail}".rstrip()


def message_lines(message: dict[str, Any]) -> Iterator[str]:
    """Yield one message of any target: its role, and its parts as text or JSON."""
    role = message.get("role") or message.get("type") or "item"
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        yield f"{role}: {content}"
        return
    if not isinstance(content, list):
        yield f"{role}: {orjson.dumps(message).decode()}"
        return
    for part in content:
        text = (
            part.get("text")
            if isinstance(part, dict) and part.get("type", "text") in {"text", "input_text", "output_text"}
            else None
        )
        yield f"{role}: {text if isinstance(text, str) else orjson.dumps(part).decode()}"
