"""The Responses validator rejects what the API rejects and accepts what it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.testing.validators import validate_openai_responses
from tests.unit.testing.validators.rule_case import PNG, RuleCase, as_params, rules_in_source, rules_of

U: dict[str, Any] = {"role": "user", "content": "hi"}
A: dict[str, Any] = {"role": "assistant", "content": "yes"}
TEXT = {"type": "input_text", "text": "hi"}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
SEALED: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_2",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAA",
}


def call(call_id: Any = "call_1", name: Any = "look", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(call_id: Any = "call_1", value: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


def image(url: Any = f"data:image/png;base64,{PNG}", **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto", **more}


GOOD = [U, call(), output()]
PDF = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "not json"}
CUSTOM_DONE = {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}

SEARCHED = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x", "queries": ["x"]},
}

CASES = [
    RuleCase("input_empty", [], [U], also=frozenset({"user_missing"})),
    RuleCase("type", 5, "hi"),
    RuleCase("item_unknown", [U, {"type": "tool_use"}], [U, SEARCHED]),
    RuleCase("item_unknown", [U, {"content": "hi"}], [U]),
    RuleCase("role_unknown", [U, {"role": "tool", "content": "x"}], GOOD),
    RuleCase("user_missing", [A], [U, A]),
    RuleCase("system_position", [U, {"role": "system", "content": "x"}], [{"role": "developer", "content": "x"}, U]),
    RuleCase("key_missing", [{"role": "user"}], [U], also=frozenset()),
    RuleCase("key_unknown", [{**U, "name": "ana"}], [U]),
    RuleCase("text_empty", "", "hi"),
    RuleCase("text_empty", [U, call(), output(value="")], GOOD),
    RuleCase("text_blank", user({"type": "input_text", "text": " "}), user(TEXT)),
    RuleCase(
        "text_too_long",
        user({"type": "input_text", "text": "a" * 10_485_761}),
        user({"type": "input_text", "text": "a" * 9}),
    ),
    RuleCase("content_empty", user(), user(TEXT)),
    RuleCase("part_unknown", user({"type": "output_text", "text": "hi"}), user(TEXT)),
    RuleCase("part_unknown", [U, {"role": "assistant", "content": [TEXT]}], [U, A]),
    RuleCase("media_source", user({"type": "input_image"}), user(image())),
    RuleCase("media_url", user(image("a.png")), user(image("https://example.org/a.png"))),
    RuleCase("media_type", user(image(f"data:image/bmp;base64,{PNG}")), user(image())),
    RuleCase("media_base64", user(image("data:image/png;base64,a")), user(image())),
    RuleCase("media_empty", user(image("data:image/png;base64,")), user(image())),
    RuleCase("media_size", user(image("data:image/png;base64," + "AAAA" * 7_000_000)), user(image())),
    RuleCase("key_missing", user({k: v for k, v in PDF.items() if k != "filename"}), user(PDF)),
    RuleCase("value_unknown", user(image(detail="huge")), user(image())),
    RuleCase("value_unknown", [U, {**A, "status": "done"}], [U, {**A, "status": "incomplete"}]),
    RuleCase("item_id", [U, {**A, "id": ""}], [U, {**A, "id": "msg_1"}]),
    RuleCase("item_id_prefix", [U, call(id="call_1"), output()], [U, call(id="fc_1"), output()]),
    RuleCase("item_id_length", [U, {**REASONING, "id": "rs_" + "x" * 62}, A], [U, {**REASONING, "id": "rs_x"}, A]),
    RuleCase("item_id_duplicate", [U, REASONING, A, U, REASONING, A], [U, REASONING, A, U, A]),
    RuleCase("call_id_length", [U, call("c" * 65), output("c" * 65)], [U, call("c" * 64), output("c" * 64)]),
    RuleCase("call_id_duplicate", [*GOOD, call()], [*GOOD, call("call_2"), output("call_2")]),
    RuleCase("function_name", [U, call(name="no.dots"), output()], GOOD),
    RuleCase("arguments_json", [U, call(arguments="{"), output()], [U, CUSTOM, CUSTOM_DONE]),
    RuleCase("output_missing", [U, call(), call("call_2"), output()], [U, call(), call("b"), output("b"), output()]),
    RuleCase("output_orphan", [U, output(), call()], GOOD),
    RuleCase("output_orphan", [U, CUSTOM, CUSTOM_DONE, output("c")], [U, CUSTOM, CUSTOM_DONE]),
    RuleCase("output_duplicate", [*GOOD, output()], GOOD),
    RuleCase("reasoning_alone", [U, REASONING], [U, REASONING, A]),
    RuleCase("reasoning_alone", [U, REASONING, U, A], [U, REASONING, SEALED, call(), output()]),
    RuleCase("key_missing", [U, {"type": "reasoning", "summary": []}, A], [U, SEALED, A]),
    RuleCase("type", user("hi"), user(TEXT)),
    RuleCase("type", [{"role": "user", "content": 5}], [U]),
    RuleCase("type", [U, call(5)], GOOD),
    RuleCase("type", [U, {**A, "id": 5}], [U, A]),
    RuleCase("type", [U, {**REASONING, "summary": "hm"}, A], [U, REASONING, A]),
    RuleCase("key_missing", user({"type": "input_text"}), user(TEXT)),
    RuleCase("key_missing", [U, {**REASONING, "summary": [{"type": "summary_text"}]}, A], [U, REASONING, A]),
    RuleCase(
        "value_unknown",
        [U, {**REASONING, "summary": [{"type": "text", "text": "hm"}]}, A],
        [U, {**REASONING, "content": [{"type": "reasoning_text", "text": "hm"}]}, A],
    ),
    RuleCase(
        "text_blank",
        [U, {"role": "assistant", "content": [{"type": "output_text", "text": " "}]}],
        [U, {**A, "content": "no"}],
    ),
    RuleCase("media_source", user({**image(), "file_id": "file-1"}), user({**image(None), "file_id": "file-1"})),
    RuleCase("json_nul", "a\x00b", "ab"),
    RuleCase("json_surrogate", "half \ud83d", "whole 😀"),
    RuleCase("json_number", [U, {"type": "mcp_call", "id": "m", "n": float("nan")}], [U]),
    RuleCase("json_type", [U, {"type": "mcp_call", "id": "m", "n": b""}], [U]),
    RuleCase("json_key", [U, {"type": "mcp_call", "id": "m", "n": {1: 2}}], [U]),
]

DEEP: Any = {}
for _ in range(200):
    DEEP = {"d": DEEP}
CASES.append(RuleCase("json_depth", [U, {"type": "mcp_call", "id": "m", "n": DEEP}], [U]))


@pytest.mark.parametrize("case", as_params(CASES))
def test_openai_responses_rejects_what_breaks_the_rule(case: RuleCase) -> None:
    """An input that breaks one rule is reported under that rule and no other (C7)."""
    assert rules_of(validate_openai_responses(case.rejected)) == {case.rule, *case.also}


@pytest.mark.parametrize("case", as_params(CASES))
def test_openai_responses_accepts_what_keeps_the_rule(case: RuleCase) -> None:
    """The nearest input that keeps the rule is accepted (C7)."""
    assert validate_openai_responses(case.accepted) == []


def test_openai_responses_has_a_rejecting_case_for_every_rule() -> None:
    """No rule of the validator goes without an input that breaks it."""
    found = rules_in_source("openai_responses", "openai_response_content")
    assert found == {case.rule for case in CASES} | {"not_stored"}


def test_openai_responses_without_storage_takes_nothing_by_id() -> None:
    """With `store: false`, reasoning must bring its encrypted content and references are refused (C7)."""
    by_id = [U, REASONING, A, {"type": "item_reference", "id": "msg_9"}]
    assert validate_openai_responses(by_id) == []
    assert rules_of(validate_openai_responses(by_id, stored=False)) == {"not_stored"}
    assert validate_openai_responses([U, SEALED, A], stored=False) == []


def test_openai_responses_outputs_may_answer_what_the_provider_keeps() -> None:
    """A continued response may begin with the outputs of calls that it did not repeat (C7)."""
    assert validate_openai_responses([output()], continues=True) == []


def test_openai_responses_instructions_are_text() -> None:
    """Instructions are a text with something in it (C7)."""
    assert validate_openai_responses("hi", "be kind") == []
    assert rules_of(validate_openai_responses("hi", "")) == {"text_empty"}
    assert rules_of(validate_openai_responses("hi", ["be kind"])) == {"type"}


def test_openai_responses_late_instructions_are_accepted_when_roles_are_not_strict() -> None:
    """The API itself takes a developer message anywhere (C7)."""
    assert validate_openai_responses([U, {"role": "developer", "content": "x"}], strict_roles=False) == []


def test_openai_responses_need_no_item_ids() -> None:
    """Answers and sealed reasoning are accepted without the id and status that the provider gave them (C7)."""
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}
    sealed = {key: value for key, value in SEALED.items() if key != "id"}
    assert validate_openai_responses([U, sealed, answer]) == []
