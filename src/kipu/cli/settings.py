"""Settings of the command line: what is in force, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kipu.cli.config_file import ConfigFile
from kipu.errors import ConfigurationError
from kipu.ports.home_path import home_path

COLOURS = ("auto", "always", "never")
TOKENS = ("estimate", "exact")
SANDBOXES = ("auto", "required", "off")
SWITCH = ("true", "false")
WORKSPACES = ("directory", "worktree", "private")
FILES = ("auto", "local", "bound", "stored", "shared")
BUSY = ("queue", "steer")
REDACTION = ("on", "off")
MEMORY = ("on", "rules", "off")
# Tables of the file: rules for tools, MCP servers, what one turn may use, what single tools are given, what is no one's business.
TABLES = ("policy", "mcp", "limits", "credentials", "retention", "redaction_rules")


@dataclass(frozen=True, slots=True)
class Known:
    """A setting there is: its environment variable and what it is for."""

    variable: str
    meaning: str
    secret: bool = False
    choices: tuple[str, ...] = ()


KNOWN: Mapping[str, Known] = {
    "store": Known("KIPU_STORE", "where sessions are kept (sqlite:///…, jsonl:///…, memory://)"),
    "key": Known(
        "KIPU_KEY", "the key of encrypted stores (file:PATH, env:NAME, passphrase, keyring:NAME, service:NAME)"
    ),
    "model": Known("KIPU_MODEL", "which model answers, such as openai:gpt-6.1-terra or demo"),
    "base_url": Known("OPENAI_BASE_URL", "an OpenAI-compatible server of your own"),
    "api_key": Known("OPENAI_API_KEY", "the key for it", secret=True),
    "project": Known("KIPU_PROJECT", "the project whose chats `kipu chat` begins and continues"),
    "tokens": Known("KIPU_TOKENS", "how tokens are counted: estimate, or exact (extra tokens)", choices=TOKENS),
    "sandbox": Known(
        "KIPU_SANDBOX", "whether commands run shut in: auto (where that works), required, off", choices=SANDBOXES
    ),
    "network": Known("KIPU_NETWORK", "whether sandboxed commands reach the network", choices=SWITCH),
    "workspace": Known("KIPU_WORKSPACE", "where a new session works: directory, worktree, private", choices=WORKSPACES),
    "workspaces": Known(
        "KIPU_WORKSPACES",
        "how files of sessions get to other machines: stored, shared, bound, local, or auto (by the store)",
        choices=FILES,
    ),
    "workspaces_root": Known("KIPU_WORKSPACES_ROOT", "the directory that all machines share, for workspaces = shared"),
    "busy": Known("KIPU_BUSY", "what a line does that is typed while an agent works: queue, steer", choices=BUSY),
    "memory": Known(
        "KIPU_MEMORY",
        "what agents remember across sessions: on, rules (no model is asked what to keep), off",
        choices=MEMORY,
    ),
    "redaction": Known(
        "KIPU_REDACTION", "whether secrets are left out of what is kept and shown to models: on, off", choices=REDACTION
    ),
    "live": Known("KIPU_LIVE", "what carries answers as they stream to other processes: auto, off, or valkey://…"),
    "archive": Known("KIPU_ARCHIVE", "where archives are kept: a folder or s3://… (default: beside the store)"),
    "colours": Known("KIPU_COLOURS", f"one of {', '.join(COLOURS)}", choices=COLOURS),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force and where it comes from; `value` is None where nothing is set."""

    name: str
    value: str | None
    source: str

    @property
    def shown(self) -> str | None:
        """Return the value as it may be shown: of a secret only its end."""
        if self.value is None or not KNOWN[self.name].secret:
            return self.value
        return f"…{self.value[-4:]}" if len(self.value) > 12 else "…"


def config_path(environment: Mapping[str, str]) -> Path:
    """Return where the configuration file is: `kipu/config.toml` in the XDG config folder."""
    base: str | Path = environment.get("XDG_CONFIG_HOME", "")
    if not Path(base).is_absolute():  # the XDG rules: a relative one is as good as none
        base = Path(environment.get("HOME") or "~", ".config")
    return home_path(base) / "kipu" / "config.toml"


class Settings:
    """Every setting in force: an option of the command wins over the environment, that over the file, that over defaults."""

    def __init__(
        self, values: Mapping[str, Setting], *, path: Path, unknown: tuple[str, ...], tables: Mapping[str, Any]
    ) -> None:
        self._values = values
        self._tables = tables
        self.path = path
        self.unknown = unknown

    @classmethod
    def load(cls, environment: Mapping[str, str], *, options: Mapping[str, str | None]) -> Settings:
        """Return the settings for this environment, its configuration file and the options given.

        Raises:
            ConfigurationError: the file is not TOML, or a value is not one that its setting takes.
        """
        path = config_path(environment)
        file = {name: _as_text(name, value) for name, value in ConfigFile(path).read().items()}
        for name in KNOWN:
            if not isinstance(file.get(name, ""), str):
                raise ConfigurationError(reason=f"{name} in {path} is not text in quotes")
        tables = {name: file[name] for name in TABLES if name in file}
        for name, table in tables.items():
            if not isinstance(table, Mapping):
                raise ConfigurationError(reason=f"{name} in {path} is not a table, such as [{name}]")
        values = {name: _in_force(name, environment, file, options, path) for name in KNOWN}
        for name, known in KNOWN.items():
            if known.choices and values[name].value not in known.choices:
                given, choices = values[name], ", ".join(known.choices)
                raise ConfigurationError(reason=f"{name} is {given.value!r} ({given.source}), not one of {choices}")
        unknown = tuple(sorted(name for name in file if name not in KNOWN and name not in TABLES))
        return cls(values, path=path, unknown=unknown, tables=tables)

    def __getitem__(self, name: str) -> str | None:
        return self._values[name].value

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a table of the file, empty where it is not there."""
        found: Mapping[str, Any] = self._tables.get(name, {})
        return found

    def all(self) -> list[Setting]:
        """Return every setting in its order."""
        return list(self._values.values())

    def for_models(self) -> dict[str, str]:
        """Return what the choice of a model reads of the file (the environment it reads by itself)."""
        names = ("model", "base_url", "api_key")
        return {
            name: setting.value
            for name in names
            if (setting := self._values[name]).value is not None and setting.source == str(self.path)
        }


def _as_text(name: str, value: Any) -> Any:
    """Return a switch as the text that the environment would give."""
    is_switch = name in KNOWN and KNOWN[name].choices == SWITCH
    return str(value).lower() if is_switch and isinstance(value, bool) else value


def _in_force(
    name: str,
    environment: Mapping[str, str],
    file: Mapping[str, str],
    options: Mapping[str, str | None],
    path: Path,
) -> Setting:
    given, variable = options.get(name), KNOWN[name].variable
    if given is not None:
        return Setting(name, given, f"--{name}")
    if environment.get(variable):
        return Setting(name, environment[variable], variable)
    if name in file:
        return Setting(name, file[name], str(path))
    return Setting(name, _default(name, environment), "default")


def _default(name: str, environment: Mapping[str, str]) -> str | None:
    if name == "store":
        from kipu.store_url import default_store_url

        return default_store_url(environment)
    return _DEFAULTS.get(name)


_DEFAULTS: Mapping[str, str] = {
    "project": "default",
    "tokens": "estimate",
    "sandbox": "auto",
    "network": "false",
    "workspace": "directory",
    "workspaces": "auto",
    "busy": "queue",
    "memory": "on",
    "redaction": "on",
    "colours": "auto",
}
