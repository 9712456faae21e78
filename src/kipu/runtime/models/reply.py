"""Building a `ModelReply` from the parts of an answer: one way for every client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kipu.ports.model import JsonObject, ModelReply, ModelUsage, ReplyState
from kipu.runtime.models.opaque import AssistantPart, pack_parts


def neutral_call(call_id: str, name: str, *, arguments: str) -> JsonObject:
    """Return a neutral tool call; arguments that are no JSON object are kept as `raw`."""
    call: dict[str, Any] = {"type": "tool_call", "id": call_id, "name": name}
    try:
        parsed = json.loads(arguments, parse_constant=_no_number) if arguments.strip() else {}
    except (ValueError, RecursionError):
        parsed = None
    return call | ({"input": parsed} if isinstance(parsed, dict) else {"raw": arguments})


def _no_number(name: str) -> None:
    """Refuse NaN and the infinities, which Python reads and JSON does not have."""
    raise ValueError(name)


def build_reply(
    parts: Sequence[AssistantPart],
    *,
    provider: str,
    model: str,
    state: ReplyState,
    usage: ModelUsage,
    finish_reason: str | None = None,
    served_model: str | None = None,
    response_id: str | None = None,
    account: str | None = None,
) -> ModelReply:
    """Return the reply of these parts. An interrupted one has no calls and nothing that has to go back to its provider."""
    whole = state == "complete"
    opaque = pack_parts(parts, account=account) if whole else None
    reasoning = "".join(part.text for part in parts if part.kind == "thinking")
    calls = tuple(part.call for part in parts if part.call is not None and whole)
    content: list[JsonObject] = []
    if reasoning or opaque:
        content.append(_reasoning(reasoning, opaque, provider=provider, model=model))
    for part in parts:
        if part.kind == "text" and part.text.strip():
            content.append({"type": "text", "text": part.text})
        elif part.call is not None and whole:
            content.append(part.call)
    return ModelReply(
        content=tuple(content),
        provider=provider,
        model=model,
        text="".join(part.text for part in parts if part.kind == "text"),
        reasoning=reasoning,
        tool_calls=calls,
        usage=usage,
        finish_reason=finish_reason,
        served_model=served_model,
        response_id=response_id,
        opaque=opaque,
        state=state,
    )


def _reasoning(text: str, opaque: JsonObject | None, *, provider: str, model: str) -> JsonObject:
    part: dict[str, Any] = {"type": "reasoning", "provider": provider, "model": model}
    if text:
        part["text"] = text
    if opaque:
        part["opaque"] = opaque
    return part
