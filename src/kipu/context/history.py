"""The plain history: messages as the design documents draw them, and the cut that never leaves an orphan (A22–A34)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kipu.context.content import memory_text, result_text, value_text
from kipu.events.content import text_of
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    MemoryRecalledEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent, utc_text

DocMessage = dict[str, Any]


def get_history(
    messages: Sequence[Mapping[str, Any]], last_consolidated: int = 0, *, max_messages: int = 500
) -> list[DocMessage]:
    """Return the history that a model may be shown: behind the consolidation boundary, bounded, from a user message on.

    1. What memory has taken in (`messages[:last_consolidated]`) is left out (A29). 2. At most `max_messages` are taken from
    the end (A30). 3. Tool results at the head, whose call was cut off, are skipped (A31). 4. It starts at the first user
    message, if there is one (A32). Where the bound would cut the newest user message off, it starts there instead, longer
    than the bound: structure wins (A33). The messages come as copies.
    """
    unconsolidated = messages[max(0, last_consolidated) :]
    sliced = unconsolidated[max(0, len(unconsolidated) - max(0, max_messages)) :]
    head = 0
    while head < len(sliced) and sliced[head].get("role") == "tool":
        head += 1
    sliced = sliced[head:]
    start = next((index for index, message in enumerate(sliced) if message.get("role") == "user"), None)
    if start is not None:
        return [dict(message) for message in sliced[start:]]
    newest = next((i for i in range(len(unconsolidated) - 1, -1, -1) if unconsolidated[i].get("role") == "user"), None)
    return [dict(message) for message in (sliced if newest is None else unconsolidated[newest:])]


def doc_messages(events: Iterable[SessionEvent]) -> list[DocMessage]:
    """Return events as role and content, an answer and the calls that follow it as one message (A22–A25, A28, B32).

    Each message has `role`, `content`, `timestamp`, and where they apply `sender_id`, `tool_calls`, `tool_call_id`, `name`.
    """
    messages: list[DocMessage] = []
    answer: DocMessage | None = None  # the assistant message that calls may still join
    for event in events:
        if isinstance(event, ToolCallEvent):
            if answer is None:
                answer = {"role": "assistant", "content": "", **_facts(event)}
                messages.append(answer)
            answer.setdefault("tool_calls", []).append(_call(event))
            continue
        message = _message(event)
        if message is None:
            continue
        answer = message if isinstance(event, AgentMessageEvent) else None
        messages.append(message)
    return messages


def _message(event: SessionEvent) -> DocMessage | None:
    if isinstance(event, UserMessageEvent):
        sender = {"sender_id": event.sender_id} if event.sender_id else {}
        return {"role": "user", "content": text_of(event.content), **sender, **_facts(event)}
    if isinstance(event, AgentMessageEvent):
        return {"role": "assistant", "content": text_of(event.content), **_facts(event)}
    if isinstance(event, ToolResultEvent):
        named = {"name": event.tool_name} if event.tool_name else {}
        told = {"role": "tool", "content": result_text(event), "tool_call_id": event.tool_call_id}
        return {**told, **named, **_facts(event)}
    if isinstance(event, InstructionEvent):
        return {"role": "system", "content": event.content, **_facts(event)}
    if isinstance(event, MemoryRecalledEvent):
        return {"role": "user", "content": memory_text(event), **_facts(event)}
    return None


def _call(event: ToolCallEvent) -> DocMessage:
    arguments = event.raw if event.raw is not None and not event.tool_input else value_text(event.tool_input)
    function = {"name": event.tool_name, "arguments": arguments}
    return {"id": event.tool_call_id, "type": "function", "function": function}


def _facts(event: SessionEvent) -> DocMessage:
    return {} if event.timestamp is None else {"timestamp": utc_text(event.timestamp)}
