"""A runtime for one command: the settings in force become what its agents are built with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from kipu.cli.invocation import Invocation
    from kipu.manager.manager import SessionManager
    from kipu.ports.model import ModelClient
    from kipu.runtime.agent_builder import AgentSettings
    from kipu.runtime.policy.policy_rule import PolicyRule
    from kipu.runtime.runtime import Runtime
    from kipu.runtime.spending import TurnLimits


def runtime_for(
    invocation: Invocation,
    manager: SessionManager,
    *,
    serves: Callable[[str], bool],
    limits: TurnLimits | None = None,
    rules: Sequence[PolicyRule] = (),
) -> Runtime:
    """Return the runtime that serves the sessions that `serves` accepts, with the command's own limits and rules on top."""
    from kipu.runtime.policy.tool_policy import PolicyLayer
    from kipu.wiring import open_runtime

    settings = agent_settings(invocation)
    if limits is not None:
        settings = replace(settings, limits=_with_limits(settings.limits, limits))
    if rules:
        settings = replace(settings, policy=(*settings.policy, PolicyLayer("user", tuple(rules))))
    return open_runtime(manager, settings=settings, open_model=model_opener(invocation), accepts=serves)


def agent_settings(invocation: Invocation) -> AgentSettings:
    """Return what every agent of this command is built with, where its session says nothing else."""
    from kipu.runtime.agent_builder import AgentSettings
    from kipu.runtime.instructions import default_workspaces_folder

    folder = default_workspaces_folder(os.environ.get("XDG_DATA_HOME"), os.environ.get("HOME"))
    return AgentSettings(folder, own_places=tuple(store_places(invocation.store_url)))


def store_places(url: str) -> Iterable[Path]:
    """Return the files and folders that the store at `url` keeps sessions in."""
    from kipu.wiring import StoreUrl

    parsed = StoreUrl.parse(url)
    if parsed.kind == "memory":
        return
    path = parsed.path.absolute()
    yield path
    if parsed.kind == "sqlite":
        yield from (path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))
    if "fallback" in parsed.settings:
        yield from store_places(parsed.settings["fallback"])


def model_opener(invocation: Invocation) -> Callable[[str | None], ModelClient]:
    """Return what opens a model by name, or the one in force, with the keys of the environment and the configuration file."""
    config = invocation.settings.for_models()

    def find_and_open(name: str | None) -> ModelClient:
        from kipu.runtime.models.loader import find_model, open_model

        return open_model(find_model(name, environment=os.environ, config=config))

    return find_and_open


def _with_limits(before: TurnLimits, given: TurnLimits) -> TurnLimits:
    """Return the limits, each as given on the command line, else as before."""
    from dataclasses import fields

    from kipu.runtime.spending import TurnLimits

    values: dict[str, Any] = {
        each.name: value if (value := getattr(given, each.name)) is not None else getattr(before, each.name)
        for each in fields(TurnLimits)
    }
    return TurnLimits(**values)
