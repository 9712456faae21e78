"""A runtime for one command: the settings in force, with the command's own limits and rules on top."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kipu.cli.invocation import Invocation
    from kipu.manager.manager import SessionManager
    from kipu.runtime.agent_builder import AgentSettings
    from kipu.runtime.policy.policy_rule import PolicyRule
    from kipu.runtime.runtime import Runtime
    from kipu.runtime.turns.spending import TurnLimits


def runtime_for(
    invocation: Invocation,
    manager: SessionManager,
    *,
    serves: Callable[[str], bool],
    limits: TurnLimits | None = None,
    rules: Sequence[PolicyRule] = (),
) -> Runtime:
    """Return the runtime that serves the sessions that `serves` accepts. Raises: ConfigurationError."""
    from kipu.cli.runtime_settings import memory_options, model_opener
    from kipu.runtime.policy.tool_policy import PolicyLayer
    from kipu.wiring import open_runtime

    settings = settings_of(invocation)
    if limits is not None:
        settings = replace(settings, limits=_with_limits(settings.limits, limits))
    if rules:
        settings = replace(settings, policy=(*settings.policy, PolicyLayer("user", tuple(rules))))
    return open_runtime(
        manager,
        settings=settings,
        open_model=model_opener(invocation.settings),
        accepts=serves,
        keeper=None,  # a command that does one thing takes no other sessions into memory meanwhile
        **memory_options(invocation, manager),
    )


def settings_of(invocation: Invocation) -> AgentSettings:
    """Return what the agents of this command are built with. Raises: ConfigurationError."""
    from kipu.cli.runtime_settings import agent_settings

    return agent_settings(invocation.settings, store_url=invocation.store_url, environment=os.environ)


def _with_limits(before: TurnLimits, given: TurnLimits) -> TurnLimits:
    """Return the limits, each as given on the command line, else as before."""
    values: dict[str, Any] = {
        each.name: value if (value := getattr(given, each.name)) is not None else getattr(before, each.name)
        for each in fields(before)
    }
    return replace(before, **values)
