"""The Messages validator rejects what the API rejects and accepts what it accepts."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from kipu.testing.validators import validate_anthropic
from tests.unit.testing.validators.rule_case import PNG, RuleCase, as_params, rules_in_source, rules_of

U = {"role": "user", "content": "hi"}
TEXT = {"type": "text", "text": "hi"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "EqQB"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def use(call_id: Any = "toolu_1", name: Any = "look", given: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if given is None else given, **more}


def result(call_id: Any = "toolu_1", content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def image(data: Any = PNG, media_type: Any = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def marked(ttl: Any = "5m") -> dict[str, Any]:
    return {**TEXT, "cache_control": {"type": "ephemeral", "ttl": ttl}}


def png(width: int, height: int) -> dict[str, Any]:
    return image(base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)).decode())


def jpeg(width: int, height: int) -> dict[str, Any]:
    app0, frame = b"\xff\xe0\0\x04ab", b"\xff\xc0\0\x0b\x08" + struct.pack(">HH", height, width) + b"\1\1\1\1"
    return image(base64.b64encode(b"\xff\xd8" + app0 + frame).decode(), "image/jpeg")


def gif(width: int, height: int) -> dict[str, Any]:
    return image(base64.b64encode(b"GIF89a" + struct.pack("<HH", width, height)).decode(), "image/gif")


WEBP = base64.b64encode(b"RIFF\0\0\0\0WEBP").decode()
GOOD = [U, says(use()), user(result())]
TWO = [U, says(use(), use("toolu_2")), user(result(), result("toolu_2"))]
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}

CASES = [
    RuleCase("messages_empty", [], [U]),
    RuleCase("type", "hi", [U]),
    RuleCase("type", [user(result(is_error="yes"))], GOOD, also=frozenset({"tool_result_orphan"})),
    RuleCase("key_missing", [{"role": "user"}], [U]),
    RuleCase("key_unknown", [{**U, "name": "ana"}], [U]),
    RuleCase("key_unknown", [user({**TEXT, "id": "x"})], [user(TEXT)]),
    RuleCase("role_unknown", [U, {"role": "tool", "content": "x"}], GOOD),
    RuleCase("role_unknown", [{"role": "system", "content": "be kind"}, U], [U]),
    RuleCase("first_not_user", [says(TEXT), U], [U, says(TEXT), U]),
    RuleCase("roles_alternate", [U, U], [U, says(TEXT), U]),
    RuleCase("ends_with_assistant", [U, says(TEXT)], [U, says(TEXT), U]),
    RuleCase("trailing_whitespace", [U, says({**TEXT, "text": "so "})], GOOD, also=frozenset({"ends_with_assistant"})),
    RuleCase("text_empty", [{"role": "user", "content": ""}], [U]),
    RuleCase("text_empty", [user({**TEXT, "text": ""})], [user(TEXT)]),
    RuleCase("text_blank", [user({**TEXT, "text": "\n"})], [user(TEXT)]),
    RuleCase("text_blank", [U, says(use()), user(result(content=" "))], GOOD),
    RuleCase("content_empty", [user()], [user(TEXT)]),
    RuleCase("block_unknown", [user(THOUGHT)], [user(TEXT)]),
    RuleCase("block_unknown", [U, says(image()), U], [user(image())]),
    RuleCase("tool_id", [U, says(use("call:1")), user(result("call:1"))], GOOD),
    RuleCase("tool_id_duplicate", [*GOOD, says(use()), user(result())], [*GOOD, says(use("b")), user(result("b"))]),
    RuleCase("tool_name", [U, says(use(name="")), user(result())], [U, says(use(name="a" * 200)), user(result())]),
    RuleCase("tool_name", [U, says(use(name="a" * 201)), user(result())], GOOD),
    RuleCase("tool_input", [U, says(use(given="{}")), user(result())], GOOD),
    RuleCase("tool_result_missing", [U, says(use()), U], GOOD),
    RuleCase("tool_result_missing", [U, says(use())], GOOD, also=frozenset({"ends_with_assistant"})),
    RuleCase("tool_result_orphan", [user(result())], GOOD),
    RuleCase("tool_result_orphan", [*GOOD, says(TEXT), user(result())], GOOD),
    RuleCase("tool_result_duplicate", [U, says(use()), user(result(), result())], TWO),
    RuleCase("tool_result_first", [U, says(use()), user(TEXT, result())], [U, says(use()), user(result(), TEXT)]),
    RuleCase("tool_result_empty", [U, says(use()), user(result(content=[]))], GOOD),
    RuleCase(
        "error_not_text",
        [U, says(use()), user(result(content=[image()], is_error=True))],
        [U, says(use()), user(result(content=[TEXT], is_error=True))],
    ),
    RuleCase("thinking_signature", [U, says({**THOUGHT, "signature": ""}, TEXT), U], [U, says(THOUGHT, TEXT), U]),
    RuleCase("key_missing", [U, says({"type": "thinking", "thinking": "hm"}, TEXT), U], [U, says(THOUGHT, TEXT), U]),
    RuleCase("thinking_first", [U, says(TEXT, THOUGHT, TEXT), U], [U, says(THOUGHT, TEXT, THOUGHT, TEXT), U]),
    RuleCase("thinking_last", [U, says(THOUGHT), U], [U, says({"type": "redacted_thinking", "data": "EmwK"}, TEXT), U]),
    RuleCase("media_type", [user(image(media_type="image/bmp"))], [user(image())]),
    RuleCase("media_base64", [user(image(f"data:image/png;base64,{PNG}"))], [user(image())]),
    RuleCase("media_empty", [user(image(""))], [user(image())]),
    RuleCase("media_size", [user(image("AAAA" * 1_400_000))], [user(image("AAAA" * 1_000_000))]),
    RuleCase("media_mismatch", [user(image(media_type="image/jpeg"))], [user(image())]),
    RuleCase("media_mismatch", [user(image(WEBP, "image/gif"))], [user(image(WEBP, "image/webp"))]),
    RuleCase("image_pixels", [user(png(8001, 1))], [user(png(8000, 8000))]),
    RuleCase("image_pixels", [user(jpeg(1, 8001))], [user(jpeg(8000, 1))]),
    RuleCase("image_pixels", [user(gif(8001, 1))], [user(gif(1, 8000))]),
    RuleCase("image_pixels_of_many", [user(*[png(2001, 1)] * 21)], [user(*[png(2001, 1)] * 20)]),
    RuleCase("images_too_many", [user(*[image()] * 101)], [user(*[image()] * 100)]),
    RuleCase(
        "media_url",
        [user({"type": "image", "source": {"type": "url", "url": "a.png"}})],
        [user({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}})],
    ),
    RuleCase(
        "source_unknown",
        [user({"type": "image", "source": {"type": "path", "path": "a.png"}})],
        [user({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}})],
    ),
    RuleCase("cache_marks", [user(*[marked()] * 5)], [user(*[marked()] * 4)]),
    RuleCase("value_unknown", [user(marked("2h"))], [user(marked("1h"))]),
    RuleCase("server_result_orphan", [U, says(FOUND, TEXT), U], [U, says(SEARCH, FOUND, TEXT), U]),
    RuleCase("server_result_missing", [U, says(SEARCH, TEXT), U], [U, says(SEARCH)]),
    RuleCase("type", [user({"type": "image", "source": "a.png"})], [user(image())]),
    RuleCase("type", [user(image(5))], [user(image())]),
    RuleCase("type", [{"role": "user", "content": 5}], [U]),
    RuleCase("type", [U, says(use(5))], GOOD, also=frozenset({"ends_with_assistant"})),
    RuleCase("type", ["hi"], [U]),
    RuleCase("key_missing", [user({"type": "image", "source": {"type": "base64", "data": PNG}})], [user(image())]),
    RuleCase(
        "block_unknown",
        [user({"type": "document", "source": {"type": "content", "content": [result()]}})],
        [user({"type": "document", "source": {"type": "content", "content": [TEXT, image()]}})],
    ),
    RuleCase(
        "media_type",
        [user({"type": "document", "source": {"type": "base64", "media_type": "text/html", "data": PNG}})],
        [user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}})],
    ),
    RuleCase("block_unknown", [U, says(use()), user(result(content=[THOUGHT]))], GOOD),
    RuleCase("json_nul", [{"role": "user", "content": "a\x00b"}], [U]),
    RuleCase("json_surrogate", [{"role": "user", "content": "half \ud83d"}], [{"role": "user", "content": "😀"}]),
    RuleCase("json_number", [U, says(use(given={"n": float("inf")})), user(result())], GOOD),
    RuleCase("json_type", [U, says(use(given={"n": {1, 2}})), user(result())], GOOD),
    RuleCase("json_key", [U, says(use(given={1: 2})), user(result())], GOOD),
]

DEEP: Any = {}
for _ in range(200):
    DEEP = {"d": DEEP}
CASES.append(RuleCase("json_depth", [U, says(use(given=DEEP)), user(result())], GOOD))

# What bears on the rest of the body, or needs an option, has its own tests below.
ELSEWHERE = {
    "messages_too_many",
    "system_position",
    "thinking_off",
    "thinking_prefill",
    "thinking_missing",
    "tool_definition_name",
    "tool_definition_duplicate",
    "tool_definition_schema",
}


@pytest.mark.parametrize("case", as_params(CASES))
def test_anthropic_rejects_what_breaks_the_rule(case: RuleCase) -> None:
    """A history that breaks one rule is reported under that rule and no other (C7)."""
    assert rules_of(validate_anthropic(case.rejected)) == {case.rule, *case.also}


@pytest.mark.parametrize("case", as_params(CASES))
def test_anthropic_accepts_what_keeps_the_rule(case: RuleCase) -> None:
    """The nearest history that keeps the rule is accepted (C7)."""
    assert validate_anthropic(case.accepted) == []


def test_anthropic_has_a_rejecting_case_for_every_rule() -> None:
    """No rule of the validator goes without a history that breaks it."""
    found = rules_in_source("anthropic_messages", "anthropic_blocks")
    assert found == {case.rule for case in CASES} | ELSEWHERE


def test_anthropic_messages_are_limited_in_number() -> None:
    """More than 100 000 messages are reported, as the API counts them."""
    assert rules_of(validate_anthropic([U, says(TEXT)] * 50_000 + [U])) == {"messages_too_many"}


def test_anthropic_neighbours_are_one_turn_when_roles_are_not_strict() -> None:
    """Neighbours of one role are merged as the API merges them, and pairs are judged after that (C7)."""
    history = [U, U, says(use()), says(use("toolu_2")), user(result()), user(result("toolu_2"))]
    assert rules_of(validate_anthropic(history)) == {"roles_alternate"}
    assert validate_anthropic(history, strict_roles=False) == []


def test_anthropic_history_may_end_with_the_model_when_asked() -> None:
    """A history to which a user message is still to come may end with an answer, but not in white space (C7)."""
    assert validate_anthropic([U, says(TEXT)], may_end_with_model=True) == []
    blank_end = [U, says({**TEXT, "text": "so \n"})]
    assert rules_of(validate_anthropic(blank_end, may_end_with_model=True)) == {"trailing_whitespace"}


def test_anthropic_system_is_text() -> None:
    """The system prompt is a text or a list of text blocks, and never empty (C7)."""
    assert validate_anthropic([U], "be kind") == []
    assert validate_anthropic([U], [marked()]) == []
    assert rules_of(validate_anthropic([U], "")) == {"text_empty"}
    assert rules_of(validate_anthropic([U], [image()])) == {"block_unknown"}


S = {"role": "system", "content": "be brief"}


@pytest.mark.parametrize(
    "history",
    [[S, U], [U, S, U], [U, says(TEXT), S], [U, says(use()), S, user(result())]],
    ids=["first", "before-user", "after-assistant", "inside-a-pair"],
)
def test_anthropic_system_messages_have_their_place(history: list[Any]) -> None:
    """A system message among the others follows the user's and precedes the assistant's, or is last (C7)."""
    assert "system_position" in rules_of(validate_anthropic(history, system_messages=True))


def test_anthropic_system_messages_are_accepted_in_their_place() -> None:
    """Well-placed system messages are accepted where the model knows them (C7)."""
    for history in ([U, S], [U, S, says(TEXT), U], [*GOOD, S]):
        assert validate_anthropic(history, system_messages=True) == []


def test_anthropic_thinking_mode_rules_the_last_turn() -> None:
    """With thinking on, a tool loop starts with its thinking and nothing is prefilled; off, the end holds none (C7)."""
    assert rules_of(validate_anthropic(GOOD, thinking=True)) == {"thinking_missing"}
    loop = [U, says(THOUGHT, use()), user(result()), says(use("toolu_2")), user(result("toolu_2"))]
    assert validate_anthropic(loop, thinking=True) == []
    assert validate_anthropic([*GOOD, says(TEXT), U], thinking=True) == []
    ending = [U, says(THOUGHT, TEXT)]
    assert rules_of(validate_anthropic(ending, thinking=True, may_end_with_model=True)) == {"thinking_prefill"}
    assert rules_of(validate_anthropic(ending, thinking=False, may_end_with_model=True)) == {"thinking_off"}
    assert validate_anthropic([*ending, U], thinking=False) == []


@pytest.mark.parametrize(
    ("rule", "tools"),
    [
        ("tool_definition_name", [{"name": "no spaces", "input_schema": {"type": "object"}}]),
        ("tool_definition_duplicate", [{"name": "a", "input_schema": {"type": "object"}}] * 2),
        ("tool_definition_schema", [{"name": "a", "input_schema": {"type": "string"}}]),
    ],
)
def test_anthropic_tool_definitions_are_judged(rule: str, tools: list[Any]) -> None:
    """Names, uniqueness and schemas of tools are judged when they are given (C7)."""
    assert rules_of(validate_anthropic([U], tools=tools)) == {rule}
    good = [
        {"name": "a-b_1", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    assert validate_anthropic([U], tools=good) == []
