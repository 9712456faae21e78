"""The MCP servers of one session: their tools, kept the same within a turn, and their end."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kipu.errors import McpServerError, MissingExtraError
from kipu.runtime.mcp.connection import McpConnection, McpState
from kipu.runtime.mcp.mcp_tool import McpTool
from kipu.runtime.mcp.server_config import McpServerConfig
from kipu.runtime.mcp.stdio_process import INHERITED, end_orphans
from kipu.stores.host import SystemLiveness, this_process_owner

if TYPE_CHECKING:
    from kipu.runtime.tools.toolbox import Toolbox

FIRST_WAIT_S = 10.0


@dataclass(slots=True)
class _Server:
    connection: McpConnection
    tools: dict[str, McpTool] = field(default_factory=dict)  # by name, as the model knows them
    listed_start: int = -1  # which start of the server the list is from
    listing: asyncio.Task[None] | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class McpStatus:
    """One server for `/mcp`: how it stands, its tools, and what was wrong with what it said."""

    state: McpState
    tools: tuple[str, ...]
    problems: tuple[str, ...]


class McpServers:
    """Connect one session with its servers (B39, B40), from the first `update` on, and end them in `aclose` (B49).

    `environment` is the process's: of it a server gets what a program needs to start, and beside it its own `env` only. `mark`
    is a text that no other session of this process has, `now` a monotonic clock.
    Raises: MissingExtraError (there are servers, and no package `mcp`).
    """

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        *,
        environment: Mapping[str, str],
        mark: str,
        now: Callable[[], float],
        cwd: str | None = None,
    ) -> None:
        if configs and importlib.util.find_spec("mcp") is None:
            raise MissingExtraError(feature="MCP servers", package="mcp", extra="agent")
        self._is_swept = not configs
        needed = {name: environment[name] for name in INHERITED if name in environment}
        self._servers = [
            _Server(
                McpConnection(config, environment=needed, cwd=cwd, mark=this_process_owner(f"{mark}-{index}"), now=now)
            )
            for index, config in enumerate(configs)
        ]

    async def update(self, toolbox: Toolbox, *, wait_s: float = FIRST_WAIT_S) -> None:
        """Bring the session's tools up to date, between two turns: call it before a turn's first model call and nowhere else.

        A server that is asked for the first time, or that says its tools changed, is waited for, `wait_s` for all together; one
        that is slower, or is tried again after a failure, is listed behind the turn and its tools come with the next one. The
        tools of a server that died stay: a call starts it again. Raises nothing that a server does.
        """
        if not self._is_swept:
            self._is_swept = True
            await asyncio.to_thread(end_orphans, SystemLiveness())
        waits = [server for server in self._servers if self._begin_listing(server)]
        tasks = [server.listing for server in waits if server.listing is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=wait_s)
        wanted = {name: tool for server in self._servers for name, tool in server.tools.items()}
        known = {name: toolbox.find(name) for name in toolbox.names}
        gone = [name for name, tool in known.items() if isinstance(tool, McpTool) and wanted.get(name) is not tool]
        await toolbox.remove(gone)
        free = [tool for name, tool in wanted.items() if toolbox.find(name) is None]
        toolbox.add(free)

    def _begin_listing(self, server: _Server) -> bool:
        """Begin where it is due, and say whether the turn waits for it."""
        connection = server.connection
        if server.listing is not None and not server.listing.done():
            return False
        is_current = server.listed_start == connection.starts and not connection.has_changed
        if server.listed_start >= 0 and is_current:
            return False
        is_first = connection.starts == 0
        server.listing = asyncio.create_task(self._list(server))
        return is_first or connection.state.state == "ready"

    async def _list(self, server: _Server) -> None:
        try:
            listed = await server.connection.tools()
        except McpServerError:
            return  # its state says so
        known = {name: tool for other in self._servers if other is not server for name, tool in other.tools.items()}
        tools: dict[str, McpTool] = {}
        left_out = server.connection.unreadable_tools
        problems = [f"{left_out} tools it lists cannot be read"] if left_out else []
        for entry in listed:
            try:
                tool = McpTool(server.connection, entry)
                if tool.spec.name in known:
                    tool = McpTool(server.connection, entry, is_taken=True)
            except Exception as error:  # noqa: BLE001 - one odd tool costs itself only
                problems.append(f"{entry.name[:80]!r} cannot be used: {type(error).__name__}")
                continue
            if tool.spec.name in tools or tool.spec.name in known:
                problems.append(f"{entry.name[:80]!r} is listed twice; the first one counts")
                continue
            if tool.problem is not None:
                problems.append(f"{tool.spec.name}: {tool.problem}")
            before = server.tools.get(tool.spec.name)
            tools[tool.spec.name] = before if before is not None and before.spec == tool.spec else tool
        server.tools, server.problems = tools, problems
        server.listed_start = server.connection.starts

    def status(self) -> list[McpStatus]:
        """Return how each server stands, in the order of the configuration."""
        return [
            McpStatus(server.connection.state, tuple(server.tools), tuple(server.problems)) for server in self._servers
        ]

    async def aclose(self) -> None:
        """End every server and wait until none of their processes is left; may be called twice.

        Raises: McpServerError (a process cannot be ended; the others were).
        """
        listings = [server.listing for server in self._servers if server.listing is not None]
        for listing in listings:
            listing.cancel()
        await asyncio.gather(*listings, return_exceptions=True)
        ended = await asyncio.gather(*(server.connection.aclose() for server in self._servers), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
