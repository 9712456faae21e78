"""What a session's settings mean for its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kipu.context.policy import WindowPolicy
from kipu.ports.model import ModelClient

SETTING_NAMES = ("temperature", "max_tokens", "top_p", "top_k", "seed", "stop", "reasoning")
WINDOW_SHARE = 0.8  # of the model's own window: the rest is for its answer and for what an estimate misses


def policy_for(model: ModelClient, *, policy: WindowPolicy | None = None) -> WindowPolicy:
    """Return the policy bounded by the model's own window (C28)."""
    policy = policy or WindowPolicy()
    if model.context_window is None:
        return policy
    return replace(policy, max_tokens=min(policy.max_tokens, int(model.context_window * WINDOW_SHARE)))


def settings_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model settings that a session's metadata holds (B37)."""
    return {name: metadata[name] for name in SETTING_NAMES if metadata.get(name) is not None}
