"""MCP servers to start as child processes that misbehave, in one way each. `mcp_good_server.py` behaves."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

TOOLS: list[dict[str, Any]] = [{"name": "go", "description": "Go.", "inputSchema": {"type": "object"}}]


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def serve(call: Callable[[dict[str, Any]], None], tools: Any = None) -> None:
    """Answer as an old server does, calls by `call`."""
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "bad", "version": "1"}
            say(id=number, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
        elif method == "tools/list":
            say(id=number, result=tools(message) if callable(tools) else {"tools": tools or TOOLS})
        elif method == "tools/call":
            call(message)
        elif number is not None:
            say(id=number, error={"code": -32601, "message": "unknown method"})


def answer(message: dict[str, Any], text: str = "ok", **more: Any) -> None:
    say(id=message["id"], result={"content": [{"type": "text", "text": text}], **more})


def silent() -> None:
    for _line in sys.stdin:
        pass


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        serve(answer)
    finally:
        time.sleep(1_000)


def gone() -> None:
    sys.stderr.write("no licence was found\n")
    sys.exit(7)


def garbage() -> None:
    while True:
        sys.stdout.write("Listening on port 80 …\n" * 1_000)


def endless() -> None:
    while True:
        sys.stdout.write("{" + "x" * 100_000)


def binary() -> None:
    sys.stdout.buffer.write(b"\xff\xfe\x00\n" * 3)
    sys.stdout.flush()
    serve(answer)


def mute() -> None:
    serve(lambda _message: None)


def huge() -> None:
    serve(lambda message: answer(message, "x" * 20_000_000))


def big() -> None:
    serve(lambda message: answer(message, "a" * 3_000_000))


def shape() -> None:
    serve(lambda message: say(id=message["id"], result={"content": "text", "isError": "maybe"}))


def stranger() -> None:
    serve(lambda message: say(id=999_999, result={"content": []}))


def refusing() -> None:
    serve(lambda message: say(id=message["id"], error={"code": -32000, "message": "not today"}))


def half() -> None:
    def call(message: dict[str, Any]) -> None:
        sys.stdout.write('{"jsonrpc": "2.0", "id": ')
        sys.stdout.flush()
        os._exit(1)

    serve(call)


def flood() -> None:
    def call(message: dict[str, Any]) -> None:
        token = message["params"].get("_meta", {}).get("progressToken")
        for number in range(30_000):
            say(method="notifications/progress", params={"progressToken": token, "progress": number})
        answer(message)

    serve(call)


def shouting() -> None:
    def call(message: dict[str, Any]) -> None:
        for _ in range(1_000):
            sys.stderr.write("\x1b[2Jno such table: " + "x" * 50_000 + "\n")
        answer(message)

    serve(call)


def asking() -> None:
    def call(message: dict[str, Any]) -> None:
        for number in range(20):
            say(id=f"ask-{number}", method="sampling/createMessage", params={"messages": [], "maxTokens": 5})
        answer(message)

    serve(call)


def liar() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    schemas: dict[str, Any] = {
        "array": {"type": "array"},
        "none": {"type": "object", "properties": {"a": {"type": "no such type"}}},
        "remote": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}},
        "local_file": {"type": "object", "$defs": {"x": {"$ref": "file:///etc/passwd"}}},
        "big": {"type": "object", "description": "x" * 100_000},
        "deep": deep,
        "choice": {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
        "räksmörgås": {"type": "object"},
        "a/b c": {"type": "object"},
        "n" * 200: {"type": "object"},
        "": {"type": "object"},
    }
    tools = [
        {"name": name, "description": "\x1b[31mred\u202e", "inputSchema": value} for name, value in schemas.items()
    ]
    fits = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools += [{**TOOLS[0], "outputSchema": fits}, TOOLS[0]]
    serve(lambda message: answer(message, structuredContent={"n": "not a number"}), tools)


def no_list() -> None:
    serve(answer, lambda _message: {"tools": "none"})


def pages() -> None:
    def page(message: dict[str, Any]) -> dict[str, Any]:
        number = int(message.get("params", {}).get("cursor", "0"))
        return {"tools": [{**TOOLS[0], "name": f"t{number}"}], "nextCursor": str(number + 1)}

    serve(answer, page)


def changing() -> None:
    calls = 0

    def call(message: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        say(method="notifications/tools/list_changed")
        answer(message)

    def tools(_message: dict[str, Any]) -> dict[str, Any]:
        more = [{**TOOLS[0], "name": "more"}] if calls else []
        schema = {"type": "object", "properties": {"a": {"type": "string"}}} if calls else {"type": "object"}
        return {"tools": [{**TOOLS[0], "name": "steady"}, {**TOOLS[0], "inputSchema": schema}, *more]}

    serve(call, tools)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
