"""From settings, the configuration file and the project's own files to a runtime: the same for every command that runs agents."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kipu.cli.config_file import ConfigFile
from kipu.cli.project_files import ProjectFiles
from kipu.errors import ConfigurationError
from kipu.ports.home_path import home_path

if TYPE_CHECKING:
    from kipu.cli.invocation import Invocation
    from kipu.cli.settings import Settings
    from kipu.manager.manager import SessionManager
    from kipu.ports.model import ModelClient
    from kipu.runtime.agent_builder import AgentSettings, OpenModel
    from kipu.runtime.models.discovery import ModelChoice
    from kipu.runtime.policy.tool_policy import PolicyLayer
    from kipu.runtime.runtime import Runtime
    from kipu.runtime.sandbox.opening import SandboxChoice
    from kipu.runtime.workspaces.place import WorkspacesMode

ORGANISATION_FILE = Path("/etc/kipu/config.toml")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def open_cli_runtime(
    invocation: Invocation, manager: SessionManager, *, open_model: OpenModel | None = None, **options: Any
) -> Runtime:
    """Return the runtime that the settings in force describe; `options` are those of `open_runtime`.

    Raises: ConfigurationError (a table of the file, or a file of the organisation, cannot be used).
    """
    from kipu.cli.collecting import retention_of
    from kipu.wiring import open_runtime

    settings = agent_settings(invocation.settings, store_url=invocation.store_url, environment=os.environ)
    return open_runtime(
        manager,
        settings=settings,
        open_model=open_model or model_opener(invocation.settings),
        retention=retention_of(invocation),
        live=invocation.settings["live"],
        **memory_options(invocation, manager),
        **options,
    )


def memory_options(invocation: Invocation, manager: SessionManager) -> dict[str, Any]:
    """Return what `open_runtime` is to know of memory under these settings; nothing where it is off."""
    from kipu.wiring import open_memory

    choice = invocation.settings["memory"]
    if choice == "off":
        return {}
    return {"memory": open_memory(manager, invocation.store_url), "memory_by_model": choice == "on"}


def agent_settings(settings: Settings, *, store_url: str, environment: Mapping[str, str]) -> AgentSettings:
    """Return what every agent of this process is built with. Raises: ConfigurationError."""
    from kipu.runtime.agent_builder import AgentSettings
    from kipu.runtime.erasing.history_place import state_folder
    from kipu.runtime.instructions import default_workspaces_folder
    from kipu.runtime.mcp.server_config import parse_mcp_servers
    from kipu.runtime.turns.spending import TurnLimits, checked_limits

    source = str(settings.path)
    return AgentSettings(
        workspaces=default_workspaces_folder(environment.get("XDG_DATA_HOME"), environment.get("HOME")),
        policy=policy_layers(settings),
        servers=parse_mcp_servers({"mcp": settings.table("mcp")}, environment=environment, source=source),
        credentials=_credentials(settings.table("credentials"), environment, source),
        sandbox=cast("SandboxChoice", settings["sandbox"]),
        has_network=settings["network"] == "true",
        limits=TurnLimits(**checked_limits(settings.table("limits"), source=source)),
        own_places=(*own_places(settings, store_url), state_folder(environment)),
        project=project_files(settings, environment).settings_for,
        workspaces_mode=cast("WorkspacesMode", settings["workspaces"]),
        workspaces_root=home_path(root).absolute() if (root := settings["workspaces_root"]) else None,
    )


def policy_layers(settings: Settings) -> tuple[PolicyLayer, ...]:
    """Return the rules of the organisation (`/etc/kipu/config.toml`) and of the user. Raises: ConfigurationError."""
    from kipu.runtime.policy.policy_rule import parse_rules
    from kipu.runtime.policy.tool_policy import LayerName, PolicyLayer

    tables: tuple[tuple[LayerName, Any, Path], ...] = (
        ("organisation", ConfigFile(ORGANISATION_FILE).read().get("policy", {}), ORGANISATION_FILE),
        ("user", settings.table("policy"), settings.path),
    )
    found = [(name, parse_rules(table, source=f"policy in {path}")) for name, table, path in tables if table]
    return tuple(PolicyLayer(name, rules) for name, rules in found)


def project_files(settings: Settings, environment: Mapping[str, str]) -> ProjectFiles:
    """Return the projects' own files, and what is known of whom the user trusts."""
    return ProjectFiles(settings.path.with_name("trusted.toml"), environment=environment)


def own_places(settings: Settings, store_url: str) -> tuple[Path, ...]:
    """Return where Kipu keeps its own: no tool reads or writes there, also where a workspace contains it."""
    from kipu.store_url import StoreUrl, memory_path

    places = [settings.path.parent]
    url: str | None = store_url
    while url is not None:
        parsed = StoreUrl.parse(url)
        if parsed.kind != "memory":
            places += [parsed.path, parsed.path.with_name(f"{parsed.path.name}.archive")]
        remembered = memory_path(parsed)
        if remembered is not None:
            places += [remembered, remembered.with_name(f"{remembered.name}-journal")]
        if parsed.kind == "sqlite":
            places += [parsed.path.with_name(parsed.path.name + end) for end in ("-wal", "-shm", "-journal")]
        url = parsed.settings.get("fallback")
    return tuple(place.absolute() for place in places)


def find_model_choice(settings: Settings, name: str | None) -> ModelChoice:
    """Return which model `name` means here; None is the one that the settings choose. Raises: ModelNameError."""
    from kipu.runtime.models.loader import find_model

    return find_model(name, environment=os.environ, config=settings.for_models())


def model_opener(settings: Settings) -> OpenModel:
    """Return what opens a model by name under these settings."""

    def open_by_name(name: str | None) -> ModelClient:
        from kipu.runtime.models.loader import open_model

        return open_model(find_model_choice(settings, name if name is not None else settings["model"]))

    return open_by_name


def _credentials(table: Mapping[str, Any], environment: Mapping[str, str], source: str) -> dict[str, Mapping[str, str]]:
    """Return what each tool is given; `${NAME}` in a value is taken from the environment."""
    found: dict[str, Mapping[str, str]] = {}
    for tool, values in table.items():
        if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
            raise ConfigurationError(reason=f"credentials.{tool} in {source} is a table of names and texts")
        found[tool] = {
            name: _expanded(value, environment, f"credentials.{tool}.{name}") for name, value in values.items()
        }
    return found


def _expanded(text: str, environment: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigurationError(reason=f"{where} needs the environment variable {match[1]}, which is not set")
        return environment[match[1]]

    return _VARIABLE.sub(value, text)
