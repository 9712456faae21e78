"""Neutral model settings, and what pydantic_ai calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kipu.errors import ConfigurationError

NAMES = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "stop": "stop_sequences",
    "reasoning": "thinking",
    "timeout_s": "timeout",
    "parallel_tool_calls": "parallel_tool_calls",
    "tool_choice": "tool_choice",
}


def provider_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` under the client library's names; None means "not set".

    Raises:
        ConfigurationError: a setting that nobody knows, which would otherwise be ignored without a word.
    """
    known = {name: value for name, value in settings.items() if value is not None}
    extra = known.pop("provider", {})
    unknown = sorted(set(known) - set(NAMES))
    if unknown or not isinstance(extra, Mapping):
        reason = f"unknown model setting {unknown[0]!r}" if unknown else "the model setting 'provider' is not an object"
        raise ConfigurationError(reason=f"{reason}; known are {', '.join([*NAMES, 'provider'])}")
    renamed = {NAMES[name]: value for name, value in known.items()}
    return {**renamed, **extra}
