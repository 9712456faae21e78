"""Reading what a client asked, in any provider's format: what a scripted answer decides by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Body = Mapping[str, Any]


def asked_texts(body: Body) -> list[str]:
    """Return what people said in a request, in order; results and instructions are not among it."""
    return [text for item in _items(body) if item.get("role") == "user" for text in _texts(item.get("content"))]


def answered_texts(body: Body) -> list[str]:
    """Return what the model said before, as the request repeats it."""
    return [text for item in _items(body) if item.get("role") == "assistant" for text in _texts(item.get("content"))]


def offered_tools(body: Body) -> list[str]:
    """Return the names of the tools that the model is offered."""
    return [tool.get("function", tool)["name"] for tool in body.get("tools") or ()]


def asked_calls(body: Body) -> list[tuple[str, str]]:
    """Return (id, tool name) of the calls in a request, in order."""
    found: list[tuple[str, str]] = []
    for item in _items(body):
        if item.get("type") == "function_call":
            found.append((item["call_id"], item["name"]))
        found += [(call["id"], call["function"]["name"]) for call in item.get("tool_calls") or ()]
        found += [(block["id"], block["name"]) for block in _blocks(item) if block.get("type") == "tool_use"]
    return found


def newest_results(body: Body) -> list[tuple[str, str]]:
    """Return (call id, text) of the results behind the newest answer, in order; empty when a person spoke last."""
    found: list[tuple[str, str]] = []
    for item in reversed(_items(body)):
        results = _results(item)
        if not results:
            break
        found = results + found
    return found


def _items(body: Body) -> list[Body]:
    given = body.get("messages", body.get("input", ()))
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _blocks(item: Body) -> Sequence[Body]:
    content = item.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else ()


def _results(item: Body) -> list[tuple[str, str]]:
    if item.get("role") == "tool":
        return [(item["tool_call_id"], "\n".join(_texts(item.get("content"))))]
    if item.get("type") == "function_call_output":
        return [(item["call_id"], "\n".join(_texts(item.get("output"))))]
    blocks = _blocks(item)
    if blocks and blocks[-1].get("type") != "tool_result":
        return []  # a person said something behind the results
    return [(block["tool_use_id"], "\n".join(_texts(block.get("content")))) for block in blocks]


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    return [
        block["text"] for block in content or () if isinstance(block, Mapping) and isinstance(block.get("text"), str)
    ]
