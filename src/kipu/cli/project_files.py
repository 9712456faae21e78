"""A project's own settings: `.kipu/config.toml` and `.mcp.json` beside its code, believed only as far as the user trusts them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kipu.cli.config_file import ConfigFile
from kipu.errors import ConfigurationError

if TYPE_CHECKING:
    from kipu.runtime.agent_builder import ProjectSettings
    from kipu.runtime.mcp.server_config import McpServerConfig
    from kipu.runtime.workspaces.record import WorkspaceRecord

SETTINGS_FILE = ".kipu/config.toml"
SERVERS_FILE = ".mcp.json"
MAX_BYTES = 1_000_000
TAKEN = (
    "policy",
    "mcp",
    "limits",
)  # anything else in a project's file is left alone: where data goes is not its business


@dataclass(frozen=True, slots=True)
class Project:
    """The files of one project as they are now. `name` is what trust is kept under: a worktree has that of its repository."""

    folder: Path
    name: str
    settings: str | None
    servers: str | None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files there are."""
        there = ((SETTINGS_FILE, self.settings), (SERVERS_FILE, self.servers))
        return tuple(name for name, text in there if text is not None)

    @property
    def digest(self) -> str:
        """Return what tells these contents from any others."""
        return hashlib.sha256(repr((self.settings, self.servers)).encode()).hexdigest()


class ProjectFiles:
    """Find projects, and keep which of them the user trusts: by place and by content, so that a change asks again.

    Of a project that nobody trusts only what makes things stricter counts: its asks and denials, and its limits. Its allows
    count for nothing, and its servers are not started.
    """

    def __init__(self, trust: Path, *, environment: Mapping[str, str]) -> None:
        self._trust = ConfigFile(trust)
        self._environment = environment

    def find(self, start: Path, *, name: str | None = None) -> Project | None:
        """Return the nearest project at or above `start`, up to the root of its repository or the home folder. Blocking."""
        home = Path(self._environment.get("HOME") or "/nowhere")
        for folder in (start, *start.parents):
            settings, servers = _text(folder / SETTINGS_FILE), _text(folder / SERVERS_FILE)
            if settings is not None or servers is not None:
                return Project(folder, name or str(folder), settings, servers)
            if (folder / ".git").exists() or folder == home:
                return None
        return None

    def is_trusted(self, project: Project) -> bool:
        """Return True where the user trusted exactly this."""
        return self._trust.read().get(project.name) == project.digest

    def trust(self, project: Project) -> None:
        """Trust the project's files as they are now."""
        self._trust.change({project.name: project.digest})

    def distrust(self, project: Project) -> None:
        """Trust the project's files no longer."""
        self._trust.change({project.name: None})

    def settings_for(self, record: WorkspaceRecord) -> ProjectSettings:
        """Return what the project around a workspace says. Blocking. Raises: ConfigurationError."""
        from kipu.runtime.agent_builder import ProjectSettings

        project = self.find(Path(record.path), name=record.repository)
        return ProjectSettings() if project is None else self._read(project, is_trusted=self.is_trusted(project))

    def _read(self, project: Project, *, is_trusted: bool) -> ProjectSettings:
        from kipu.runtime.agent_builder import ProjectSettings
        from kipu.runtime.mcp.server_config import parse_mcp_servers
        from kipu.runtime.policy.policy_rule import parse_rules
        from kipu.runtime.policy.tool_policy import PolicyLayer
        from kipu.runtime.turns.spending import checked_limits

        source = str(project.folder / SETTINGS_FILE)
        said = _toml(project.settings, source)
        rules = parse_rules(said.get("policy", {}), source=f"policy in {source}")
        servers: tuple[McpServerConfig, ...] = ()
        if is_trusted:
            more = _json(project.servers, str(project.folder / SERVERS_FILE))
            servers = parse_mcp_servers(
                {"mcp": said.get("mcp", {}), **more}, environment=self._environment, source=str(project.folder)
            )
        limits = said.get("limits")
        if limits is not None:
            checked_limits(limits, source=source)  # said with the file's name, before a session's are laid over them
        return ProjectSettings(
            policy=(PolicyLayer("project", rules, narrows_only=not is_trusted),) if rules else (),
            servers=servers,
            limits=limits,
        )


def project_notice(project: Project, *, is_trusted: bool) -> str:
    """Return what a person is told of a project's own settings."""
    named = " and ".join(project.files)
    if is_trusted:
        return f"{named} of {project.folder} are in force: you trusted them"
    return (
        f"{named} of {project.folder}: not trusted, so only what makes things stricter counts and no server of it is started; "
        "look at them, then /trust"
    )


def _text(path: Path) -> str | None:
    """Return a small file's text, None where there is none."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(reason=f"{path} cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise ConfigurationError(reason=f"{path} is larger than {MAX_BYTES} bytes")
    return data.decode("utf-8", "replace")


def _toml(text: str | None, source: str) -> dict[str, Any]:
    import tomllib

    try:
        said = tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(reason=f"{source} is not TOML: {error}") from error
    return {name: value for name, value in said.items() if name in TAKEN}


def _json(text: str | None, source: str) -> dict[str, Any]:
    import json

    try:
        said = json.loads(text) if text else {}
    except ValueError as error:
        raise ConfigurationError(reason=f"{source} is not JSON: {error}") from error
    return {"mcpServers": said.get("mcpServers", {})} if isinstance(said, dict) else {}
