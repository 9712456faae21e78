"""Judge request bodies as the providers' APIs would, independently of the code that renders them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kipu.errors import InputError
from kipu.testing.validators.anthropic_messages import validate_anthropic
from kipu.testing.validators.gemini import validate_gemini
from kipu.testing.validators.neutral import validate_neutral
from kipu.testing.validators.openai_chat import validate_openai_chat
from kipu.testing.validators.openai_responses import validate_openai_responses
from kipu.testing.validators.violation import Violation

TARGETS = ("openai_chat", "openai_responses", "anthropic", "gemini", "neutral")

__all__ = [
    "TARGETS",
    "Violation",
    "validate",
    "validate_anthropic",
    "validate_gemini",
    "validate_neutral",
    "validate_openai_chat",
    "validate_openai_responses",
]


def validate(target: str, payload: Mapping[str, Any], *, may_end_with_model: bool = False) -> list[Violation]:
    """Return every rule of `target` that a request body breaks; an empty list means that it is accepted.

    Whole bodies are taken as clients send them: keys that do not bear on the history are passed over, and those that
    do (`store`, `thinking`, `tools`, `previous_response_id` …) are heeded. `may_end_with_model` judges a history to
    which a user message is still to come.
    """
    if target == "openai_chat":
        return validate_openai_chat(payload.get("messages", ()))
    if target == "openai_responses":
        return _validate_responses(payload)
    if target == "anthropic":
        return _validate_anthropic(payload, may_end_with_model=may_end_with_model)
    if target == "gemini":
        system = payload.get("systemInstruction", payload.get("system_instruction"))
        return validate_gemini(payload.get("contents", ()), system, may_end_with_model=may_end_with_model)
    if target == "neutral":
        return validate_neutral(payload.get("messages", ()), may_end_with_model=may_end_with_model)
    raise InputError(reason=f"{target!r} is not one of the targets {', '.join(TARGETS)}")


def _validate_responses(payload: Mapping[str, Any]) -> list[Violation]:
    continues = payload.get("previous_response_id") is not None or payload.get("conversation") is not None
    return validate_openai_responses(
        payload.get("input", ()),
        payload.get("instructions"),
        stored=payload.get("store") is not False,
        continues=continues,
    )


def _validate_anthropic(payload: Mapping[str, Any], *, may_end_with_model: bool) -> list[Violation]:
    thinking = payload.get("thinking")
    mode = thinking.get("type") if isinstance(thinking, Mapping) else None
    return validate_anthropic(
        payload.get("messages", ()),
        payload.get("system"),
        tools=payload.get("tools"),
        may_end_with_model=may_end_with_model,
        # A client that names its model knows whether that model takes such messages; placement is judged anyway.
        system_messages="model" in payload,
        thinking={"enabled": True, "disabled": False}.get(mode) if isinstance(mode, str) else None,
    )
