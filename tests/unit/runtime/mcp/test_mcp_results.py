"""What servers answer, as content, and their schemas, as providers take them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from mcp_types import CallToolResult

from kipu.context.content import result_parts
from kipu.events.content import MediaPart, TextPart
from kipu.events.conversation import ToolResultEvent
from kipu.ports.tool import ToolResult
from kipu.runtime.mcp.result_content import MAX_BLOCKS, result_of
from kipu.runtime.mcp.tool_schema import usable_schema
from kipu.runtime.tools.argument_schema import ArgumentSchema

PNG = base64.b64encode(b"\x89PNG" + bytes(20)).decode()


def answered(*content: dict[str, Any], **more: Any) -> ToolResult:
    return result_of(CallToolResult.model_validate({"content": list(content), **more}))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_mcp_results_of_text_are_text() -> None:
    """Text parts become one text (C29)."""
    assert answered(text("a"), text("b")) == ToolResult("a\nb")
    assert answered() == ToolResult("")


def test_mcp_results_with_media_are_parts_that_a_window_shows() -> None:
    """Images, sound and embedded files become media parts, with text beside them (C29)."""
    result = answered(
        text("see"),
        {"type": "image", "data": PNG, "mimeType": "image/PNG; q=1"},
        {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": PNG, "mimeType": "application/pdf"}},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "words"}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
    )
    parts = result_parts(ToolResultEvent(tool_call_id="c", result=result.content))
    assert [part.media_type for part in parts if isinstance(part, MediaPart)] == [
        "image/png",
        "audio/wav",
        "application/pdf",
    ]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    assert texts == ["see", "[resource file:///b]\nwords", "[link to resource file:///c (unknown type) c]"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "no base64!", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "image", "data": PNG, "mimeType": "not a type"},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": "%%%"}},
    ],
)
def test_mcp_results_say_what_could_not_be_shown(block: dict[str, Any]) -> None:
    """Media that nobody could read is a line of text, never a part that a provider refuses (A2, C29)."""
    result = answered(block)
    assert isinstance(result.content, str)
    assert "left out" in result.content


def test_mcp_results_show_structured_content_once() -> None:
    """Structured content is shown where no text says the same, and not twice where one does (C29)."""
    assert answered(structuredContent={"n": 1}).content == {"n": 1}
    assert answered(text('{"n": 1}'), structuredContent={"n": 1}).content == '{"n": 1}'
    assert answered(text("5"), structuredContent={"result": 5}).content == "5"
    assert answered(text("hi"), structuredContent={"result": "hi"}).content == "hi"
    assert answered(text("see"), structuredContent={"n": 1}).content == 'see\n{"n":1}'
    assert answered(text("see"), structuredContent={"n": 1 << 70}).content == f'see\n{{"n":{1 << 70}}}'


def test_mcp_results_that_are_errors_say_so() -> None:
    """A tool's own error is an error result, also an empty one (C29)."""
    assert answered(text("no"), isError=True) == ToolResult("no", is_error=True, error_info="tool_error")
    assert answered(isError=True).content


def test_mcp_results_are_bounded() -> None:
    """Too many parts or too much text are cut, with a note (C29)."""
    many = answered(*[text("x")] * (MAX_BLOCKS + 5))
    assert many.content.endswith("[5 further parts were left out]")
    assert len(answered(text("x" * 5_000_000)).content) < 2_100_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "$defs": {"x": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/x"}}},
        {"type": "object", "properties": {"id": {"type": "string"}, "$ref": {"type": "string"}}},
    ],
)
def test_mcp_schema_that_is_sound_stays_as_it_is(schema: dict[str, Any]) -> None:
    """A schema that everybody takes is not touched (C29)."""
    assert usable_schema(schema) == (schema, None)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {},
        {"type": "string"},
        {"type": "object", "properties": 3},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/s.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "$id": "https://example.org/", "properties": {"a": {"$ref": "#/$defs/x"}}},
        {"type": "object", "description": "x" * 40_000},
    ],
)
def test_mcp_schema_that_nobody_takes_is_replaced(schema: Any) -> None:
    """Broken, foreign-reaching and oversized schemas give way to one that takes any object, with the reason (A2, C29)."""
    usable, problem = usable_schema(schema)
    assert usable == {"type": "object", "additionalProperties": True}
    assert problem


def test_mcp_schema_loses_what_providers_refuse_at_its_top() -> None:
    """Choices at the top, which providers refuse with the whole request, go; properties stay (A2, C29)."""
    given = {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}]}
    usable, problem = usable_schema(given)
    assert usable == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert problem is not None
    assert "oneOf" in problem
    assert ArgumentSchema(usable).problems({"a": 1})
