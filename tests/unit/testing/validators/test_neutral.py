"""The validator of neutral messages keeps to the form that windows are recorded in."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.testing.validators import validate_neutral
from tests.unit.testing.validators.rule_case import PNG, RuleCase, as_params, rules_in_source, rules_of

TEXT = {"type": "text", "text": "hi"}
S = {"role": "system", "content": [TEXT]}
U = {"role": "user", "content": [TEXT]}
THOUGHT = {"type": "reasoning", "text": "hm", "provider": "anthropic", "model": "m"}
BLOB = {"type": "media", "media_type": "image/png", "blob": "a" * 64, "size": 70}


def user(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": list(blocks)}]


def says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(call_id: Any = "c1", name: Any = "look", **given: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, **(given or {"input": {}})}


def result(call_id: Any = "c1", name: Any = "look", content: Any = None, is_error: Any = False) -> dict[str, Any]:
    blocks = [TEXT] if content is None else content
    return {"type": "tool_result", "id": call_id, "name": name, "content": blocks, "is_error": is_error}


def told(*results: Any) -> dict[str, Any]:
    return {"role": "tool", "content": list(results)}


GOOD = [S, U, says(THOUGHT, TEXT, call()), told(result())]
TWO = [U, says(call(), call("c2")), told(result(), result("c2"))]
INLINE = {"type": "media", "media_type": "image/png", "data": PNG}

CASES = [
    RuleCase("messages_empty", [], [U], also=frozenset({"user_missing"})),
    RuleCase("type", {"messages": []}, [U]),
    RuleCase("type", [{"role": "user", "content": "hi"}], [U]),
    RuleCase("type", [U, says(call()), told(result(is_error=None))], GOOD),
    RuleCase("role_unknown", [U, {"role": "developer", "content": [TEXT]}], GOOD),
    RuleCase("key_missing", [U, says(call()), told({k: v for k, v in result().items() if k != "is_error"})], GOOD),
    RuleCase("key_unknown", [{**U, "name": "ana"}], [U]),
    RuleCase("key_unknown", user({**TEXT, "cache": True}), [U]),
    RuleCase("content_empty", user(), [U]),
    RuleCase("content_empty", [U, says(call()), told(result(content=[]))], GOOD),
    RuleCase("block_unknown", user(THOUGHT), [U]),
    RuleCase("block_unknown", [{"role": "system", "content": [BLOB]}, U], [S, U]),
    RuleCase("text_empty", user({"type": "text", "text": ""}), [U]),
    RuleCase("text_blank", user({"type": "text", "text": "\t"}), [U]),
    RuleCase("reasoning_alone", [U, says(THOUGHT), U], [U, says(THOUGHT, TEXT), U]),
    RuleCase(
        "reasoning_empty",
        [U, says({"type": "reasoning", "provider": "p", "model": "m"}, TEXT), U],
        [U, says({"type": "reasoning", "provider": "p", "model": "m", "opaque": {"s": 1}}, TEXT), U],
    ),
    RuleCase(
        "tool_input", [U, says(call(input={}, raw="{")), told(result())], [U, says(call(raw="{")), told(result())]
    ),
    RuleCase("tool_input", [U, says(call(input="{}")), told(result())], GOOD),
    RuleCase("media_type", user({**BLOB, "media_type": "picture"}), user(BLOB)),
    RuleCase("media_source", user({**BLOB, "data": PNG}), user(INLINE)),
    RuleCase("media_blob", user({**BLOB, "blob": "xyz"}), user(BLOB)),
    RuleCase("media_blob", user({k: v for k, v in BLOB.items() if k != "size"}), user(BLOB)),
    RuleCase("media_base64", user({**INLINE, "data": "!"}), user(INLINE)),
    RuleCase("media_empty", user({**INLINE, "data": ""}), user(INLINE)),
    RuleCase("media_size", user({**INLINE, "data": "AAAA" * 12_000_000}), user(INLINE)),
    RuleCase("system_position", [U, S], [S, U]),
    RuleCase("system_position", [S, S, U], [S, U]),
    RuleCase("user_missing", [S], [S, U]),
    RuleCase("first_not_user", [S, says(TEXT), U], [S, U, says(TEXT), U]),
    RuleCase("ends_with_assistant", [U, says(TEXT)], [U, says(TEXT), U]),
    RuleCase("tool_call_id_duplicate", [U, says(call(), call()), told(result())], TWO),
    RuleCase(
        "tool_call_id_duplicate", [*GOOD, says(call()), told(result())], [*GOOD, says(call("c2")), told(result("c2"))]
    ),
    RuleCase("tool_result_missing", [U, says(call(), call("c2")), told(result())], TWO),
    RuleCase("tool_result_missing", [U, says(call()), U], GOOD),
    RuleCase("tool_result_orphan", [U, told(result())], GOOD),
    RuleCase("tool_result_orphan", [*GOOD, told(result())], GOOD),
    RuleCase("tool_result_duplicate", [U, says(call()), told(result(), result())], TWO),
    RuleCase("tool_result_order", [U, says(call(), call("c2")), told(result("c2"), result())], TWO),
    RuleCase("tool_result_name", [U, says(call()), told(result(name="other"))], GOOD),
    RuleCase("type", ["hi"], [U], also=frozenset({"user_missing"})),
    RuleCase("type", user("hi"), [U]),
    RuleCase("type", [U, says({**THOUGHT, "opaque": "EqQB"}, TEXT), U], [U, says({**THOUGHT, "opaque": {}}, TEXT), U]),
    RuleCase("type", [U, says(call(5))], GOOD, also=frozenset({"ends_with_assistant"})),
    RuleCase("type", [U, says(call()), told(result(), result(5))], GOOD),
    RuleCase("text_empty", user({**BLOB, "name": ""}), user({**BLOB, "name": "a.png"})),
    RuleCase("json_nul", user({"type": "text", "text": "a\x00b"}), [U]),
    RuleCase("json_surrogate", user({"type": "text", "text": "half \ud83d"}), user({"type": "text", "text": "😀"})),
    RuleCase("json_number", [U, says(call(input={"n": float("nan")})), told(result())], GOOD),
    RuleCase("json_type", [U, says(call(input={"n": b""})), told(result())], GOOD),
    RuleCase("json_key", [U, says(call(input={1: 2})), told(result())], GOOD),
]

DEEP: Any = {}
for _ in range(200):
    DEEP = {"d": DEEP}
CASES.append(RuleCase("json_depth", [U, says(call(input=DEEP)), told(result())], GOOD))


@pytest.mark.parametrize("case", as_params(CASES))
def test_neutral_rejects_what_breaks_the_rule(case: RuleCase) -> None:
    """A window that breaks one rule is reported under that rule and no other (C7)."""
    assert rules_of(validate_neutral(case.rejected)) == {case.rule, *case.also}


@pytest.mark.parametrize("case", as_params(CASES))
def test_neutral_accepts_what_keeps_the_rule(case: RuleCase) -> None:
    """The nearest window that keeps the rule is accepted (C7)."""
    assert validate_neutral(case.accepted) == []


def test_neutral_has_a_rejecting_case_for_every_rule() -> None:
    """No rule of the validator goes without a window that breaks it."""
    needless = {"media_url", "value_unknown"}  # shared checks that this target has no use for
    assert rules_in_source("neutral") - needless == {case.rule for case in CASES}


def test_neutral_history_may_end_with_the_model_when_asked() -> None:
    """A history to which a user message is still to come may end with an answer (C7)."""
    assert validate_neutral([U, says(TEXT)], may_end_with_model=True) == []
