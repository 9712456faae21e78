"""Which MCP servers a configuration names, and what it cannot say."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from kipu.errors import ConfigurationError
from kipu.runtime.mcp.server_config import McpServerConfig, parse_mcp_servers

COMMON = """{"mcpServers": {
  "files": {"command": "npx", "args": ["-y", "files", "${ROOT:-/tmp}"], "env": {"TOKEN": "${TOKEN}"}, "alwaysAllow": ["x"]},
  "web": {"type": "http", "url": "https://example.org/mcp?key=${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
  "off": {"command": "x", "disabled": true}
}}"""
TOML = """
[mcp.files]
command = "npx"
args = ["-y", "files"]
policy = "allow"
trust_hints = true
call_timeout_s = 5

[mcp.off]
command = "x"
enabled = false
"""


def test_mcp_config_reads_the_common_json_form() -> None:
    """What other programs' files say is read, with variables from the environment, and what is theirs alone is passed over (C29)."""
    files, web = parse_mcp_servers(json.loads(COMMON), environment={"TOKEN": "t0ken"})
    assert (files.command, files.args, files.env) == ("npx", ("-y", "files", "/tmp"), {"TOKEN": "t0ken"})
    assert (web.url, web.headers) == ("https://example.org/mcp?key=t0ken", {"Authorization": "Bearer t0ken"})
    assert {server.policy for server in (files, web)} == {"ask"}


def test_mcp_config_shows_no_credentials() -> None:
    """Neither its repr nor what `/mcp` shows has a value of env, headers or query (A19)."""
    for server in parse_mcp_servers(json.loads(COMMON), environment={"TOKEN": "t0ken"}):
        assert "t0ken" not in repr(server)
        assert "t0ken" not in json.dumps(server.to_json())


def test_mcp_config_reads_kipus_own_toml() -> None:
    """`[mcp.NAME]` says the same and, beside it, policy, trust and times (C29)."""
    (files,) = parse_mcp_servers(tomllib.loads(TOML))
    expected = McpServerConfig("files", "npx", ("-y", "files"), policy="allow", trust_hints=True, call_timeout_s=5.0)
    assert files == expected
    assert parse_mcp_servers({"model": "demo"}) == ()


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ("npx", "table"),
        ({}, "command or a url"),
        ({"command": "a", "url": "http://b"}, "command or a url"),
        ({"command": ""}, "command"),
        ({"command": 3}, "command"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "a", "args": "b"}, "args"),
        ({"command": "a", "args": [1]}, "args"),
        ({"command": "a", "env": {"A": 1}}, "env"),
        ({"command": "a", "env": {"A=B": "1"}}, "env"),
        ({"command": "a", "env": {"A": "${MISSING}"}}, "MISSING"),
        ({"command": "a", "type": "http"}, "type"),
        ({"command": "a", "policy": "maybe"}, "policy"),
        ({"command": "a", "trust_hints": "yes"}, "trust_hints"),
        ({"command": "a", "disabled": 1}, "disabled"),
        ({"command": "a", "call_timeout_s": 0}, "call_timeout_s"),
        ({"command": "a", "call_timeout_s": True}, "call_timeout_s"),
        ({"url": "ftp://x"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://x:99999999"}, "url"),
        ({"url": "http://x", "type": "sse"}, "type"),
        ({"url": "http://x", "headers": {"A": "b\r\nC: d"}}, "header"),
    ],
)
@pytest.mark.parametrize("table", ["mcp", "mcpServers"])
def test_mcp_config_that_cannot_be_used_is_refused(table: str, entry: Any, word: str) -> None:
    """What cannot be meant is an error that names the server and the field (C29)."""
    with pytest.raises(ConfigurationError) as caught:
        parse_mcp_servers({table: {"srv": entry}})
    assert "'srv'" in str(caught.value)
    assert word in str(caught.value)


def test_mcp_config_refuses_unknown_fields_twins_and_odd_tables() -> None:
    """A misspelt field of our own, a name in both tables, or a table that is none is an error (C29)."""
    good = {"command": "a"}
    wrong: list[Any] = [
        {"mcp": {"srv": {**good, "comand": "b"}}},
        {"mcp": {"srv": good}, "mcpServers": {"srv": good}},
        {"mcp": []},
        {"mcp": {" ": good}},
        {"mcp": {f"s{n}": good for n in range(65)}},
        [],
    ]
    for data in wrong:
        with pytest.raises(ConfigurationError):
            parse_mcp_servers(data)
