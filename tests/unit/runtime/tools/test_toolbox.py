"""A session's tools by name, and what a model is told of calls that cannot be made."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ToolError
from kipu.ports.tool import JsonObject, Tool, ToolContext, ToolPreview, ToolResult, ToolSpec
from kipu.runtime.tools.argument_schema import ArgumentSchema
from kipu.runtime.tools.default_tools import default_tools
from kipu.runtime.tools.toolbox import Toolbox


class NamedTool:
    """A tool that does nothing and counts how often it is closed."""

    def __init__(self, name: str, schema: dict[str, Any] | None = None, *, fails: bool = False) -> None:
        self._spec = ToolSpec(name, "does nothing", schema or {"type": "object"})
        self.closed = 0
        self._fails = fails

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def subject(self, arguments: JsonObject) -> str:
        return ""

    async def preview(self, arguments: JsonObject, context: ToolContext) -> ToolPreview:
        return ToolPreview("nothing")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        return ToolResult("done")

    async def aclose(self) -> None:
        self.closed += 1
        if self._fails:
            raise RuntimeError("does not close")


def test_definitions_only_grow_at_their_end(tmp_path: Path) -> None:
    """Tools that come later stand behind: what a provider has cached stays a prefix (C9)."""
    first, second = Toolbox(default_tools(root=tmp_path)), Toolbox(default_tools(root=tmp_path))
    assert first.definitions() == second.definitions()
    names = ["read_file", "write_file", "edit_file", "list_dir", "search_files", "read_result", "ask_user"]
    assert first.names == names
    before = first.definitions()
    first.add([NamedTool("zeta"), NamedTool("alpha")])
    assert first.definitions()[: len(before)] == before
    assert first.names == [*names, "alpha", "zeta"]


def test_names_are_taken_once() -> None:
    """A second tool of a name is refused, and then none of its company is added."""
    toolbox = Toolbox([NamedTool("a")])
    for tools in ([NamedTool("b"), NamedTool("a")], [NamedTool("c"), NamedTool("c")]):
        with pytest.raises(ToolError):
            toolbox.add(tools)
    assert toolbox.names == ["a"]


def test_every_default_tool_declares_itself_strictly(tmp_path: Path) -> None:
    """Schemas are valid and closed, reads are allowed and harmless, writes ask."""
    for tool in default_tools(root=tmp_path):
        spec = tool.spec
        assert ArgumentSchema(spec.parameters).fault is None
        assert spec.parameters["additionalProperties"] is False
        assert all(value.get("description") or name == "edits" for name, value in spec.parameters["properties"].items())
        writes = spec.name in {"write_file", "edit_file"}
        policy = "ask" if writes or spec.name == "ask_user" else "allow"  # to ask is what that tool does
        assert (spec.default_policy, spec.has_side_effect) == (policy, writes)
        assert spec.is_idempotent == (spec.name != "edit_file")


def test_calls_that_cannot_be_made_are_results(tmp_path: Path) -> None:
    """An unknown tool, wrong arguments and broken JSON are results that say what to do; a right call is none."""
    toolbox = Toolbox(default_tools(root=tmp_path))
    assert toolbox.refusal("read_file", {"path": "a", "offset": 3}) is None
    unknown = toolbox.refusal("ReadFile", {})
    assert unknown is not None
    assert (unknown.error_info, "Did you mean read_file" in unknown.content) == ("unknown_tool", True)
    wrong = toolbox.refusal("edit_file", {"path": 7, "edits": [{"old_text": "a"}], "extra": 1})
    assert wrong is not None
    assert wrong.error_info == "arguments_invalid"
    for told in ("path: 7 is not of type 'string'", "edits[0]: 'new_text' is a required", "there are path, edits"):
        assert told in wrong.content


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ('{"path": "a", "content": "half', "They end in the middle"),
        ('{"path": "a"', "They end in the middle"),
        ("", "They end in the middle"),
        ('{"path": "a" "b": 1}', 'Expecting \',\' delimiter at character 14 of 20: {"path": "a"  ⟨here⟩ "b": 1}'),
        ('{"path": "a\nb"}', "Invalid control character"),
        ("[1, 2]", "they are list, not an object"),
        ('"text"', "they are str, not an object"),
        ("[" * 100_000, "cannot be read"),
        ('{"n": ' + "9" * 5000 + "}", "cannot be read"),
    ],
)
def test_arguments_that_are_no_json_are_explained(tmp_path: Path, raw: str, told: str) -> None:
    """What was wrong with the JSON is said, with its place, and what to do about it."""
    refusal = Toolbox(default_tools(root=tmp_path)).refusal("write_file", {}, raw=raw, parse_error="not JSON")
    assert refusal is not None
    assert (refusal.is_error, refusal.error_info) == (True, "arguments_unreadable")
    assert told in refusal.content
    assert len(refusal.content) < 1000


def _doubling(depth: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(depth)
    }
    definitions[f"d{depth}"] = {"type": "string"}
    return {"$defs": definitions, "type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


HOSTILE: list[tuple[dict[str, Any], Any]] = [
    ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "a" * 50 + "!"}),
    ({"properties": {"x": {"pattern": "a*a*a*a*a*a*b"}}}, {"x": "a" * 3000}),
    ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 50 + "!": 1}),
    ({"$ref": "#"}, {}),
    ({"properties": {"x": {"$ref": "#/properties/x"}}}, {"x": 1}),
    ({"properties": {"x": {"$ref": "https://192.0.2.1/schema"}}}, {"x": 1}),
    ({"properties": {"x": {"$ref": "#/nowhere"}}}, {"x": 1}),
    ({"$schema": "https://192.0.2.1/draft", "$id": "https://192.0.2.1/x"}, {}),
    (_doubling(17), {"x": 1}),
    (_nested(500), {}),
    ({"type": "object", "properties": {f"p{n}": {} for n in range(20_000)}}, {}),
    ({"type": 7, "properties": "none", "required": {"a": 1}}, {}),
    ({"properties": {"x": {"minLength": "two", "multipleOf": 0}}}, {"x": 1}),
    ({"properties": {"x": {"items": {"type": "integer"}}}}, {"x": ["a"] * 300_000}),
    ({"properties": {"x": {"uniqueItems": True}}}, {"x": [{"a": n} for n in range(20_000)]}),
    ({"properties": {"x": {"multipleOf": 1e-308}}}, {"x": 1e308}),
    ({"type": "object", "not": {"unevaluatedProperties": False}}, {}),
]


@pytest.mark.parametrize(("schema", "arguments"), HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
def test_hostile_schemas_neither_hang_nor_raise(schema: dict[str, Any], arguments: Any) -> None:
    """Whatever a server says its schema is, a check ends soon with an answer, and nothing is fetched (C29)."""
    toolbox = Toolbox([NamedTool("lying", schema)])
    began = time.process_time()
    problems = toolbox.validate("lying", arguments)
    assert time.process_time() - began < 5
    assert isinstance(problems, list)
    assert toolbox.validate("lying", [1]) == ["the arguments are not an object but list"]


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"not": {"pattern": "^(a+)+$", "type": "string"}}, {}),
        ({"properties": {"x": {"not": {"format": "email", "pattern": "(a+)+"}}}}, {"x": 1}),
        (
            {"oneOf": [{"properties": {"x": {"pattern": "(a+)+b"}}}, {"properties": {"x": {"pattern": "(c+)+d"}}}]},
            {"x": "aab"},
        ),
        ({"if": {"unknownKeyword": 1}, "then": {"required": ["y"]}}, {}),
        ({"patternProperties": {"(x+)+": {}}, "additionalProperties": False}, {"xx": 1}),
        ({"properties": {"x": {"contains": {"pattern": "(a+)+b"}, "maxContains": 1}}}, {"x": ["ab", "c"]}),
    ],
)
def test_keywords_left_out_never_refuse_more(schema: dict[str, Any], arguments: Any) -> None:
    """What is not checked makes the check milder, also below `not`, `if` and `oneOf`."""
    assert ArgumentSchema(schema).problems(arguments) == []


def test_keywords_that_are_checked_refuse() -> None:
    """Local references, quick patterns, enums, bounds and alternatives are checked; properties named like keywords too."""
    schema: dict[str, Any] = {
        "$defs": {"unit": {"enum": ["s", "ms"]}},
        "properties": {
            "unit": {"$ref": "#/$defs/unit"},
            "digest": {"pattern": "^[0-9a-f]{4}$"},
            "count": {"oneOf": [{"type": "integer", "maximum": 5}, {"type": "null"}]},
            "pattern": {"type": "string"},
            "$ref": {"type": "string"},
        },
        "additionalProperties": False,
    }
    check = ArgumentSchema(schema)
    assert check.problems({"unit": "s", "digest": "00ff", "count": None, "pattern": "(", "$ref": "x"}) == []
    for wrong in ({"unit": "h"}, {"digest": "xyz"}, {"count": 9}, {"pattern": 1}, {"$ref": 1}, {"other": 1}):
        assert len(check.problems(wrong)) == 1


async def test_closing_closes_every_tool_also_when_one_fails() -> None:
    """All tools are closed once, whatever one of them does, and closing again is harmless (B49)."""
    tools = [NamedTool("a"), NamedTool("b", fails=True), NamedTool("c")]
    toolbox = Toolbox(list[Tool](tools))
    with pytest.raises(RuntimeError):
        await toolbox.aclose()
    await toolbox.aclose()
    assert [tool.closed for tool in tools] == [1, 1, 1]


async def test_removed_tools_are_closed_and_forgotten() -> None:
    """The tools of a server that is gone leave, the others stay in their order."""
    tools = [NamedTool("a"), NamedTool("b"), NamedTool("c")]
    toolbox = Toolbox(list[Tool](tools))
    await toolbox.remove(["b", "unknown"])
    assert (toolbox.names, tools[1].closed, toolbox.find("b")) == (["a", "c"], 1, None)
