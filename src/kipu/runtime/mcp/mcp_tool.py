"""One tool of one server, as the loop sees it: whatever the server does, a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from kipu.context.content import value_text
from kipu.errors import McpServerError
from kipu.ports.tool import JsonObject, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.mcp.connection import McpConnection
from kipu.runtime.mcp.result_content import result_of
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.mcp.tool_names import tool_name
from kipu.runtime.mcp.tool_schema import usable_schema

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

MAX_DESCRIPTION_CHARACTERS = 4_000
MAX_REPORTS = 500  # of progress that one call may show
_SUMMARY_CHARACTERS = 400


class McpTool:
    """Call a server's tool. A failure, a delay, a death or nonsense is an error result (C29)."""

    def __init__(
        self, connection: McpConnection, listed: ListedTool, *, is_taken: bool = False, problem: str | None = None
    ) -> None:
        self._connection = connection
        self._config = connection.config
        self._name = listed.name
        self._hints = _hints(listed)
        parameters, schema_problem = usable_schema(listed.input_schema)
        self.problem = problem or schema_problem
        self._spec = _spec(self._config, listed, parameters=parameters, hints=self._hints, is_taken=is_taken)

    @property
    def spec(self) -> ToolSpec:
        """Return what the tool declares. What its server says of it widens nothing unless that server is trusted."""
        return self._spec

    @property
    def server(self) -> str:
        """Return the name of its server."""
        return self._config.name

    def subject(self, arguments: JsonObject) -> str:
        """Return the arguments as canonical JSON."""
        try:
            return orjson.dumps(dict(arguments), option=orjson.OPT_SORT_KEYS, default=str).decode()
        except TypeError:  # such as an integer of more than 64 bits
            return value_text(dict(arguments))

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        """Return server, tool and arguments, and what the server says of the tool."""
        said = f" (the server says: {', '.join(sorted(self._hints))})" if self._hints else ""
        shown = self.subject(arguments)
        if len(shown) > _SUMMARY_CHARACTERS:
            shown = f"{shown[:_SUMMARY_CHARACTERS]}…"
        return ToolPreview(f"{self._config.name}: {self._name} {shown}{said}")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        """Call it and return what it answered, or why there is no answer."""
        reports = 0

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reports
            reports += 1
            if reports <= MAX_REPORTS:
                context.emit(_report(progress, total, message))

        try:
            answer = await self._connection.call(self._name, arguments, progress=progress)
            return result_of(answer)
        except McpServerError as error:
            return ToolResult(
                f"{self._config.name} could not run {self._name}: {error.reason}.",
                is_error=True,
                error_info=str(error.kind),
            )

    async def aclose(self) -> None:
        """Hold nothing: the connection belongs to the session's `McpServers`."""


def _spec(
    config: McpServerConfig, listed: ListedTool, *, parameters: dict[str, Any], hints: frozenset[str], is_taken: bool
) -> ToolSpec:
    is_read_only = config.trust_hints and "read-only" in hints
    description = listed.description or listed.title or f"{listed.name} of {config.name}"
    visible = "".join(char for char in description if char.isprintable() or char in "\n\t")
    return ToolSpec(
        name=tool_name(config.name, listed.name, is_taken=is_taken),
        description=visible[:MAX_DESCRIPTION_CHARACTERS],
        parameters=parameters,
        is_idempotent=is_read_only or (config.trust_hints and "idempotent" in hints),
        has_side_effect=not is_read_only,
        is_external=not is_read_only,
        default_policy=config.policy,
        timeout_s=config.connect_timeout_s + config.call_timeout_s + 10,
    )


def _hints(listed: ListedTool) -> frozenset[str]:
    said = listed.annotations
    if said is None:
        return frozenset()
    named = {
        "read-only": said.read_only_hint,
        "idempotent": said.idempotent_hint,
        "destructive": said.destructive_hint and not said.read_only_hint,
    }
    return frozenset(name for name, is_said in named.items() if is_said)


def _report(progress: float, total: float | None, message: str | None) -> str:
    done = f"{progress:g}/{total:g}" if total else f"{progress:g}"
    text = " ".join((message or "").split())[:300]
    return f"{text} ({done})\n" if text else f"{done}\n"
