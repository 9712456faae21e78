"""Which MCP servers there are, as people write it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from kipu.errors import ConfigurationError
from kipu.ports.tool import PolicyAnswer
from kipu.runtime.policy.policy_rule import ANSWERS

MAX_SERVERS = 64
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamable_http": "http"}
_NUMBERS = ("connect_timeout_s", "call_timeout_s")
_KNOWN = frozenset(
    {
        "type",
        "transport",
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "headers",
        "disabled",
        "enabled",
        "policy",
        "trust_hints",
    }
) | frozenset(_NUMBERS)


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """One server: a `command` to start and speak to over its pipes, or a `url` to post to.

    `env` and `headers` may hold credentials: they are this server's alone, and never shown. `policy` is what its tools declare
    (`ask` unless somebody decided otherwise). With `trust_hints` what the server says of its tools (read-only, idempotent) is
    believed; else it is shown to people only, since believing it would let a call run again after a crash.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    policy: PolicyAnswer = "ask"
    trust_hints: bool = False
    connect_timeout_s: float = 30.0
    call_timeout_s: float = 60.0

    def to_json(self) -> dict[str, Any]:
        """Return what may be shown of it: of credentials their names, of an address where it leads."""
        place: dict[str, Any] = {"command": self.command, "args": list(self.args), "env": sorted(self.env)}
        if self.url is not None:
            parts = urlsplit(self.url)
            place = {"url": f"{parts.scheme}://{parts.hostname or ''}{parts.path}", "headers": sorted(self.headers)}
        return {"name": self.name, **place, "policy": self.policy, "trust_hints": self.trust_hints}


def parse_mcp_servers(
    data: object, *, environment: Mapping[str, str] | None = None, source: str = "the configuration"
) -> tuple[McpServerConfig, ...]:
    """Return the servers that a parsed file names: `{"mcpServers": {name: …}}` (JSON) or `[mcp.NAME]` (TOML); none for neither.

    `${NAME}` and `${NAME:-default}` in values are taken from `environment`. Fields that other programs keep beside theirs under
    `mcpServers` are passed over; under `mcp` every field is known. Servers that are disabled are left out.

    Raises:
        ConfigurationError: it names the server and the field; no server is left out silently.
    """
    if not isinstance(data, Mapping):
        raise ConfigurationError(reason=f"{source} is a table, not {data!r:.80}")
    found: dict[str, McpServerConfig] = {}
    for table, is_ours in (("mcpServers", False), ("mcp", True)):
        servers = data.get(table, {})
        if not isinstance(servers, Mapping):
            raise ConfigurationError(reason=f"{table} of {source} is a table of servers, not {servers!r:.80}")
        for name, entry in servers.items():
            reader = _Entry(f"MCP server {name!r:.80} of {source}", entry, environment=environment or {})
            if name in found:
                raise reader.wrong("is there twice")
            if not reader.is_disabled():
                found[name] = reader.server(str(name), is_ours=is_ours)
    if len(found) > MAX_SERVERS:
        raise ConfigurationError(reason=f"{source} names {len(found)} MCP servers, and at most {MAX_SERVERS} are taken")
    return tuple(found.values())


class _Entry:
    """One server's table, read with errors that say where."""

    def __init__(self, where: str, entry: object, *, environment: Mapping[str, str]) -> None:
        self._where = where
        self._environment = environment
        if not isinstance(entry, Mapping):
            raise self.wrong("is no table")
        self._entry = cast(Mapping[str, Any], entry)

    def wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(reason=f"{self._where} {what}")

    def is_disabled(self) -> bool:
        return self._flag("disabled", default=False) or not self._flag("enabled", default=True)

    def server(self, name: str, *, is_ours: bool) -> McpServerConfig:
        if not name.strip() or len(name) > 128:
            raise self.wrong("needs a name of 1 to 128 characters")
        unknown = sorted(str(field_) for field_ in self._entry if field_ not in _KNOWN)
        if unknown and is_ours:
            raise self.wrong(f"has no field {unknown[0]!r}; there are {', '.join(sorted(_KNOWN))}")
        command, url = self._text("command"), self._text("url")
        self._check_transport(command, url)
        policy = self._entry.get("policy", "ask")
        if policy not in ANSWERS:
            raise self.wrong(f"has the policy {policy!r:.80}, which is none of {', '.join(ANSWERS)}")
        return McpServerConfig(
            name=name,
            command=command,
            args=self._texts("args"),
            env=self._table("env"),
            cwd=self._text("cwd"),
            url=url,
            headers=self._table("headers"),
            policy=policy,
            trust_hints=self._flag("trust_hints", default=False),
            **{number: seconds for number in _NUMBERS if (seconds := self._seconds(number)) is not None},
        )

    def _check_transport(self, command: str | None, url: str | None) -> None:
        given = self._entry.get("type", self._entry.get("transport"))
        if (command is None) == (url is None):
            raise self.wrong("needs either a command or a url")
        if given is not None and _TRANSPORTS.get(str(given)) != ("stdio" if url is None else "http"):
            raise self.wrong(f"has the type {given!r:.80}; a command goes with stdio, a url with http")
        if url is not None:
            try:
                parts = urlsplit(url)
                is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            except ValueError:
                is_web = False
            if not is_web:
                raise self.wrong("has a url that is none (http://… or https://…)")

    def _expanded(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            given = self._environment.get(match[1])
            if given:
                return given
            if match[2] is None:
                raise self.wrong(f"needs the environment variable {match[1]}, which is not set")
            return match[2]

        expanded = _VARIABLE.sub(value, text)
        if "\0" in expanded:
            raise self.wrong("has a NUL character in a value")
        return expanded

    def _text(self, name: str) -> str | None:
        value = self._entry.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(f"has a {name} that is no text")
        return self._expanded(value)

    def _texts(self, name: str) -> tuple[str, ...]:
        value = self._entry.get(name, [])
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self.wrong(f"has {name} that are no list of texts")
        return tuple(self._expanded(each) for each in value)

    def _table(self, name: str) -> dict[str, str]:
        value = self._entry.get(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(f"has {name} that is no table")
        for key, each in value.items():
            if not isinstance(key, str) or not isinstance(each, str) or not key or any(c in key for c in "=\0\r\n"):
                raise self.wrong(f"has {name} in which {key!r:.80} is no text")
            if name == "headers" and any(c in each for c in "\r\n"):
                raise self.wrong(f"has a line break in the header {key!r:.80}")
        return {key: self._expanded(each) for key, each in value.items()}

    def _flag(self, name: str, *, default: bool) -> bool:
        value = self._entry.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(f"has a {name} that is neither true nor false")
        return value

    def _seconds(self, name: str) -> float | None:
        value = self._entry.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
            raise self.wrong(f"has a {name} that is no number of seconds up to a day")
        return float(value)
