"""The Chat Completions validator rejects what the API rejects and accepts what it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.testing.validators import validate_openai_chat
from tests.unit.testing.validators.rule_case import PNG, RuleCase, as_params, rules_in_source, rules_of

U = {"role": "user", "content": "hi"}


def call(call_id: Any = "call_1", name: Any = "look", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def asks(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def told(call_id: Any = "call_1", content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


def image(url: Any = f"data:image/png;base64,{PNG}", **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


TEXT = {"type": "text", "text": "hi"}
GOOD = [U, asks(call()), told()]
WAV = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
PDF = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG}", "filename": "a.pdf"}}

CASES = [
    RuleCase("messages_empty", [], [U]),
    RuleCase("messages_too_many", [U] * 2049, [U] * 2048),
    RuleCase("type", ["hi"], [U]),
    RuleCase("type", {"role": "user"}, [U]),
    RuleCase("role_unknown", [U, {"role": "function", "name": "f", "content": "x"}], GOOD),
    RuleCase("key_unknown", [{**U, "reasoning_content": "x"}], [{**U, "name": "ana"}]),
    RuleCase("key_missing", [{"role": "user"}], [U]),
    RuleCase("user_missing", [{"role": "system", "content": "be kind"}], [{"role": "system", "content": "be kind"}, U]),
    RuleCase(
        "system_position",
        [U, {"role": "system", "content": "be kind"}],
        [{"role": "system", "content": "be kind"}, {"role": "developer", "content": "be brief"}, U],
    ),
    RuleCase("participant_name", [{**U, "name": "ana maria"}], [{**U, "name": "ana"}]),
    RuleCase("text_empty", [{"role": "user", "content": ""}], [U]),
    RuleCase("text_empty", [U, asks(call()), told(content="")], GOOD),
    RuleCase("text_blank", user({"type": "text", "text": " \n"}), user(TEXT)),
    RuleCase(
        "text_too_long", user({"type": "text", "text": "a" * 10_485_761}), user({"type": "text", "text": "a" * 9})
    ),
    RuleCase("content_empty", user(), user(TEXT)),
    RuleCase("part_unknown", [{"role": "system", "content": [image()]}, U], [{"role": "system", "content": [TEXT]}, U]),
    RuleCase(
        "assistant_empty", [U, {"role": "assistant", "content": None}], [U, {"role": "assistant", "refusal": "no"}]
    ),
    RuleCase("tool_calls_empty", [U, asks()], [U, {"role": "assistant", "content": "yes"}]),
    RuleCase(
        "tool_calls_too_many",
        [U, asks(*(call(f"c{n}") for n in range(129))), *(told(f"c{n}") for n in range(129))],
        [U, asks(*(call(f"c{n}") for n in range(128))), *(told(f"c{n}") for n in range(128))],
    ),
    RuleCase("tool_call_type", [U, asks({**call(), "type": "tool"}), told()], GOOD),
    RuleCase(
        "tool_call_id_length",
        [U, asks(call("c" * 41)), told("c" * 41)],
        [U, asks(call("c" * 40)), told("c" * 40)],
    ),
    RuleCase("tool_call_id_length", [U, asks(call("")), told("")], GOOD),
    RuleCase(
        "tool_call_id_duplicate",
        [U, asks(call(), call()), told()],
        [U, asks(call(), call("call_2")), told("call_2"), told()],
    ),
    RuleCase("function_name", [U, asks(call(name="no.dots")), told()], [U, asks(call(name="a" * 64)), told()]),
    RuleCase(
        "arguments_json", [U, asks(call(arguments='{"a":')), told()], [U, asks(call(arguments='{"a":1}')), told()]
    ),
    RuleCase("arguments_json", [U, asks(call(arguments="[1]")), told()], GOOD),
    RuleCase("arguments_json", [U, asks(call(arguments='{"a":NaN}')), told()], GOOD),
    RuleCase("type", [U, asks(call(arguments={"a": 1})), told()], GOOD),
    RuleCase("tool_result_missing", [U, asks(call(), call("call_2")), told()], GOOD),
    RuleCase("tool_result_missing", [U, asks(call()), U, told()], GOOD, also=frozenset({"tool_result_orphan"})),
    RuleCase("tool_result_orphan", [U, told()], GOOD),
    RuleCase("tool_result_orphan", [*GOOD, told("call_9")], GOOD),
    RuleCase("tool_result_duplicate", [*GOOD, told()], [*GOOD, asks(call()), told()]),
    RuleCase("media_url", user(image("file:///etc/passwd")), user(image("https://example.org/a.png"))),
    RuleCase("media_type", user(image(f"data:image/tiff;base64,{PNG}")), user(image())),
    RuleCase("media_base64", user(image("data:image/png;base64,!!")), user(image())),
    RuleCase("media_empty", user(image("data:image/png;base64,")), user(image())),
    RuleCase("media_size", user(image("data:image/png;base64," + "AAAA" * 7_000_000)), user(image())),
    RuleCase("value_unknown", user(image(detail="huge")), user(image(detail="low"))),
    RuleCase("value_unknown", user({**WAV, "input_audio": {"data": PNG, "format": "ogg"}}), user(WAV)),
    RuleCase("file_source", user({"type": "file", "file": {"filename": "a.pdf"}}), user(PDF)),
    RuleCase("key_missing", user({"type": "text"}), user(TEXT)),
    RuleCase("key_missing", user({"type": "image_url", "image_url": {}}), user(image())),
    RuleCase("key_missing", user({"type": "input_audio", "input_audio": {"data": PNG}}), user(WAV)),
    RuleCase(
        "key_missing", user({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PNG}"}}), user(PDF)
    ),
    RuleCase("type", user({"type": "image_url", "image_url": "https://example.org/a.png"}), user(image())),
    RuleCase("type", user(image(5)), user(image())),
    RuleCase("type", user({**WAV, "input_audio": {"data": 5, "format": "wav"}}), user(WAV)),
    RuleCase("type", [{"role": "user", "content": 5}], [U]),
    RuleCase("type", [U, asks("call_1")], GOOD),
    RuleCase("type", [U, {"role": "assistant", "tool_calls": {}}], GOOD),
    RuleCase("type", [U, asks({"id": "call_1", "type": "function", "function": "look"}), told()], GOOD),
    RuleCase("type", [U, asks(call(5))], GOOD),
    RuleCase("key_missing", [U, asks({"id": "call_1", "type": "function"}), told()], GOOD),
    RuleCase("key_missing", [U, asks({**call(), "function": {"name": "look"}}), told()], GOOD),
    RuleCase(
        "function_name",
        [U, asks({"id": "c", "type": "custom", "custom": {"name": "", "input": "x"}}), told("c")],
        [U, asks({"id": "c", "type": "custom", "custom": {"name": "run", "input": "not json"}}), told("c")],
    ),
    RuleCase("file_source", user({"type": "file", "file": {}}), user({"type": "file", "file": {"file_id": "file-1"}})),
    RuleCase("json_nul", [{"role": "user", "content": "a\x00b"}], [U]),
    RuleCase("json_surrogate", [{"role": "user", "content": "half \ud83d"}], [{"role": "user", "content": "whole 😀"}]),
    RuleCase("json_number", [{**U, "content": [{**TEXT, "prompt_cache_breakpoint": float("nan")}]}], [U]),
    RuleCase("json_type", [{**U, "content": [{**TEXT, "prompt_cache_breakpoint": b"x"}]}], [U]),
    RuleCase("json_key", [{**U, "content": [{**TEXT, "prompt_cache_breakpoint": {1: 2}}]}], [U]),
]

DEEP: Any = "leaf"
for _ in range(200):
    DEEP = [DEEP]
CASES.append(RuleCase("json_depth", [{**U, "content": [{**TEXT, "prompt_cache_breakpoint": DEEP}]}], [U]))


@pytest.mark.parametrize("case", as_params(CASES))
def test_openai_chat_rejects_what_breaks_the_rule(case: RuleCase) -> None:
    """A history that breaks one rule is reported under that rule and no other (C7)."""
    assert rules_of(validate_openai_chat(case.rejected)) == {case.rule, *case.also}


@pytest.mark.parametrize("case", as_params(CASES))
def test_openai_chat_accepts_what_keeps_the_rule(case: RuleCase) -> None:
    """The nearest history that keeps the rule is accepted (C7)."""
    assert validate_openai_chat(case.accepted) == []


def test_openai_chat_has_a_rejecting_case_for_every_rule() -> None:
    """No rule of the validator goes without a history that breaks it."""
    assert rules_in_source("openai_chat") == {case.rule for case in CASES}


def test_openai_chat_options_admit_what_other_servers_take() -> None:
    """Longer ids, late instructions and a server's own keys are accepted only when asked for (C7)."""
    history = [U, asks(call("c" * 64), reasoning_content="hm"), told("c" * 64), {"role": "system", "content": "short"}]
    strict = rules_of(validate_openai_chat(history))
    loose = validate_openai_chat(
        history, strict_roles=False, max_tool_call_id_chars=64, extra_message_keys={"reasoning_content"}
    )
    assert (strict, loose) == ({"tool_call_id_length", "key_unknown", "system_position"}, [])


def test_openai_chat_points_at_the_place_when_a_result_is_missing() -> None:
    """A violation carries the JSON pointer of the call that has no result."""
    violations = validate_openai_chat([U, asks(call(), call("call_2")), told()])
    assert [v.path for v in violations] == ["/messages/1/tool_calls/1"]
