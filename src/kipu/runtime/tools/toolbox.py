"""`Toolbox`: the tools of one session, by name, and what a model is told of a call that cannot be made."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from kipu.errors import ToolError
from kipu.ports.tool import Tool, ToolResult, ToolSpec
from kipu.runtime.tools.argument_schema import ArgumentSchema
from kipu.runtime.tools.file_tool import failure

_log = logging.getLogger(__name__)
_SHOWN_AROUND = 60


class Toolbox:
    """Hold a session's tools. What a model is told of them changes only by appending, so that a prompt's prefix stays."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, ArgumentSchema] = {}
        self._checked: set[str] = set()
        for tool in tools:
            self._add(tool)

    def add(self, tools: Iterable[Tool]) -> None:
        """Add tools behind those there are, by name. Raises: ToolError (a name is taken; none was added)."""
        added = sorted(tools, key=lambda tool: tool.spec.name)
        names = [tool.spec.name for tool in added]
        for name in names:
            if name in self._tools or names.count(name) > 1:
                raise ToolError(tool=name, reason="there is another tool of this name")
        for tool in added:
            self._add(tool)

    def _add(self, tool: Tool) -> None:
        if tool.spec.name in self._tools:
            raise ToolError(tool=tool.spec.name, reason="there is another tool of this name")
        self._tools[tool.spec.name] = tool

    async def remove(self, names: Iterable[str]) -> None:
        """Close and forget tools, such as those of a server that is gone."""
        removed = [tool for name in names if (tool := self._tools.pop(name, None)) is not None]
        for tool in removed:
            self._schemas.pop(tool.spec.name, None)
            self._checked.discard(tool.spec.name)
        await _close(removed)

    @property
    def names(self) -> list[str]:
        """Return the names in order."""
        return list(self._tools)

    def definitions(self) -> list[dict[str, Any]]:
        """Return what a model is told: in the order in which the tools were given, those added later behind.

        Raises: ToolError (what one says of itself cannot be used).
        """
        for name, tool in self._tools.items():
            if name not in self._checked:
                _check(tool.spec)
                self._checked.add(name)
        return [tool.spec.definition() for tool in self._tools.values()]

    def find(self, name: str) -> Tool | None:
        """Return the tool, None if there is none of this name."""
        return self._tools.get(name)

    def validate(self, name: str, arguments: Any) -> list[str]:
        """Return what is wrong with the arguments of a call, nothing when it can be made."""
        tool = self._tools.get(name)
        if tool is None:
            return [f"there is no tool {name!r}"]
        schema = self._schemas.get(name)
        if schema is None:
            schema = self._schemas[name] = ArgumentSchema(tool.spec.parameters)
            if schema.fault is not None:
                _log.warning(
                    "the arguments of tool %s are not checked: its schema cannot be used: %s", name, schema.fault
                )
        return schema.problems(arguments)

    def refusal(
        self, name: str, arguments: Mapping[str, Any], *, raw: str | None = None, parse_error: str | None = None
    ) -> ToolResult | None:
        """Return the result of a call that cannot be made, None for one that can.

        `raw` and `parse_error` are those of its event: arguments that were no JSON object.
        """
        if name not in self._tools:
            return self._unknown(name)
        if raw is not None or parse_error is not None:
            return _unreadable(name, raw or "", parse_error=parse_error)
        problems = self.validate(name, arguments)
        if not problems:
            return None
        said = "\n".join(f"- {problem}" for problem in problems)
        return failure(
            f"{name} was not called: its arguments are not as it wants them.\n{said}", word="arguments_invalid"
        )

    def _unknown(self, name: str) -> ToolResult:
        shown = name[:100]
        folded = {known.casefold().replace("-", "_"): known for known in self._tools}
        near = difflib.get_close_matches(shown.casefold().replace("-", "_"), folded, n=2, cutoff=0.5)
        meant = f" Did you mean {' or '.join(folded[key] for key in near)}?" if near else ""
        known = ", ".join(list(self._tools)[:50]) or "none"
        return failure(f"There is no tool {shown!r}.{meant} There are: {known}.", word="unknown_tool")

    async def aclose(self) -> None:
        """Close every tool, also when one of them fails; may be called twice."""
        tools = list(self._tools.values())
        self._tools.clear()
        self._schemas.clear()
        await _close(tools)


def _check(spec: ToolSpec) -> None:
    """Raise ToolError for what a tool says of itself and no turn could work with: it is named here, and nowhere later."""
    try:
        orjson.dumps(spec.definition())
    except (TypeError, ValueError) as error:
        raise ToolError(tool=spec.name, reason=f"what a model is told of it is no JSON ({error})") from error
    if spec.timeout_s is not None and not spec.timeout_s > 0:  # NaN stops the timers of the whole event loop
        raise ToolError(tool=spec.name, reason=f"its timeout_s is {spec.timeout_s!r}, not a number above 0")


async def _close(tools: list[Tool]) -> None:
    errors: list[Exception] = []
    for tool in reversed(tools):
        try:
            await tool.aclose()
        except Exception as error:  # noqa: BLE001 - whatever one tool does, the others must be closed
            errors.append(error)
    if errors:
        raise errors[0]


def _unreadable(name: str, raw: str, *, parse_error: str | None) -> ToolResult:
    """Return what was wrong with arguments that were not a JSON object, and where."""
    said = parse_error or "they are not a JSON object"
    advice = "Give one JSON object, with line breaks and quotes in texts escaped."
    try:
        value = json.loads(raw)
    except json.JSONDecodeError as error:
        at = error.pos
        piece = f"{raw[max(0, at - _SHOWN_AROUND) : at]} ⟨here⟩ {raw[at : at + _SHOWN_AROUND]}"
        said = f"{error.msg} at character {at + 1} of {len(raw)}: {piece}"
        if _is_cut(raw, error):
            advice = (
                "They end in the middle: the answer was probably cut at its limit. Give less at once, in several calls."
            )
    except (RecursionError, ValueError) as error:
        said = f"they cannot be read: {error}"
    else:
        if not isinstance(value, dict):
            said = f"they are {type(value).__name__}, not an object"
    return failure(
        f"{name} was not called: its arguments are not valid JSON. {said}\n{advice}", word="arguments_unreadable"
    )


def _is_cut(raw: str, error: json.JSONDecodeError) -> bool:
    return error.pos >= len(raw.rstrip()) or error.msg.startswith("Unterminated string")
