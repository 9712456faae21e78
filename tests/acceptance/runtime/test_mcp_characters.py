"""Answers of MCP servers with characters that no UTF-8 has."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from kipu.runtime.mcp.connection import McpConnection
from kipu.runtime.mcp.server_config import McpServerConfig

# As a server in Python answers that lists a directory in which one name is no UTF-8.
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    said = {"content": [{"type": "text", "text": "caf\\udce9.txt"}]}
    result = {"initialize": about, "tools/call": said}.get(asked["method"])
    outcome = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}), flush=True)
"""


async def _no_progress(progress: float, total: float | None, message: str | None) -> None:
    """Take no notice."""


async def test_answer_with_half_a_character_is_an_answer(tmp_path: Path) -> None:
    """The call has its result, and is not waited for until it is given up (C29)."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    config = McpServerConfig(name="files", command=sys.executable, args=(str(script),), call_timeout_s=60)
    connection = McpConnection(config, environment=dict(os.environ), cwd=None, mark="characters", now=time.monotonic)
    try:
        answer = await connection.call("list", {}, progress=_no_progress)
        assert [getattr(part, "text", None) for part in answer.content] == ["caf\ufffd.txt"]
    finally:
        await connection.aclose()
