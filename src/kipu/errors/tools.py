"""A tool cannot be used; the model is told, the turn goes on."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


class DemoStepError(KipuError):
    """The tour stopped at {step!r}: {reason}. Everything is kept in {folder}; `kipu demo --keep` shows it again."""

    code = "demo_step"


class ToolError(KipuError):
    """The tool {tool} cannot be used: {reason}."""

    code = "tool"


class SandboxError(ToolError):
    """Commands cannot be shut in here: {reason}. Install bubblewrap, or allow commands one by one."""

    code = "sandbox"


class McpServerError(ToolError):
    """The MCP server {server} failed: {reason}. The model is told so; `/mcp` shows how each server stands."""

    code = "mcp_server"
