"""An MCP server that behaves, made with the mcp package: over its pipes, or over HTTP at the port given."""

import asyncio
import os
import subprocess
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("good")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def environment() -> dict[str, str]:
    """Return the environment."""
    return dict(os.environ)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def fail() -> str:
    """Fail."""
    raise ValueError("the disk is on fire")


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=b"\x89PNG\r\n\x1a\n" + bytes(16), format="png")


@server.tool()
async def slow(steps: int, ctx: Context) -> str:
    """Take some steps."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        await asyncio.sleep(0.01)
    return "done"


@server.tool()
def die() -> str:
    """Die in the middle of the call."""
    os._exit(3)


@server.tool()
def leave_child() -> int:
    """Start a child that leaves the group and ignores SIGTERM."""
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=pipe, stdin=pipe)
    assert child.stdout is not None
    child.stdout.readline()
    return child.pid


@server.tool()
async def change(ctx: Context) -> str:
    """Change the tools there are."""

    def added(text: str) -> str:
        """Say it."""
        return text

    server.add_tool(added)
    server.remove_tool("picture")
    await ctx.notify_tools_changed()
    return "changed"


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
