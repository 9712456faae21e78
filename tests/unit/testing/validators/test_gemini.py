"""The generateContent validator rejects what the API rejects and accepts what it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from kipu.testing.validators import validate_gemini
from tests.unit.testing.validators.rule_case import PNG, RuleCase, as_params, rules_in_source, rules_of

TEXT = {"text": "hi"}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def call(name: Any = "look", args: Any = None, *, signature: Any = None, **more: Any) -> dict[str, Any]:
    part = {"functionCall": {"name": name, "args": {} if args is None else args, **more}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def response(name: Any = "look", value: Any = None, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "ok"} if value is None else value, **more}}


def blob(data: Any = PNG, mime: Any = "image/png") -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": data}}


U = user(TEXT)
GOOD = [U, model(call()), user(response())]
TWO = [U, model(call(id="a"), call(id="b")), user(response(id="a"), response(id="b"))]
BIG = "AAAA" * 4_000_000

CASES = [
    RuleCase("contents_empty", [], [U]),
    RuleCase("type", "hi", [U]),
    RuleCase("type", [user({"thought": "yes", "text": "hi"})], [U], also=frozenset({"part_role"})),
    RuleCase(
        "key_missing", [U, model({"functionCall": {}})], GOOD, also=frozenset({"ends_with_model", "response_count"})
    ),
    RuleCase("key_unknown", [{**U, "name": "ana"}], [U]),
    RuleCase("key_unknown", [user({**TEXT, "cacheControl": {}})], [U]),
    RuleCase("role_unknown", [{"role": "assistant", "parts": [TEXT]}, U], [U]),
    RuleCase("role_unknown", [{"role": "system", "parts": [TEXT]}, U], [U]),
    RuleCase("parts_empty", [user()], [U]),
    RuleCase("part_empty", [user({})], [U]),
    RuleCase("part_ambiguous", [user({**TEXT, **blob()})], [user(TEXT, blob())]),
    RuleCase("part_role", [user(call(), TEXT)], GOOD, also=frozenset({"call_position", "response_count"})),
    RuleCase("text_empty", [user({"text": ""})], [U, model({"text": "", "thoughtSignature": "AAAA"}), U]),
    RuleCase("text_blank", [user({"text": " "})], [U]),
    RuleCase("first_not_user", [model(TEXT), U], [U, model(TEXT), U]),
    RuleCase("roles_alternate", [U, U], [user(TEXT, TEXT)]),
    RuleCase("ends_with_model", [U, model(TEXT)], [U, model(TEXT), U]),
    RuleCase("call_position", [model(call()), user(response())], GOOD, also=frozenset({"first_not_user"})),
    RuleCase(
        "call_position", [U, model(TEXT), model(call()), user(response())], GOOD, also=frozenset({"roles_alternate"})
    ),
    RuleCase("response_orphan", [user(response())], GOOD),
    RuleCase("response_orphan", [*GOOD, model(TEXT), user(response())], [*GOOD, model(call()), user(response())]),
    RuleCase("response_count", [U, model(call(), call()), user(response())], TWO),
    RuleCase("response_count", [U, model(call()), U], GOOD),
    RuleCase("response_name", [U, model(call()), user(response("other"))], GOOD),
    RuleCase("response_id", [U, model(call(id="a")), user(response(id="b"))], TWO),
    RuleCase(
        "response_duplicate", [U, model(call(id="a"), call(id="b")), user(response(id="a"), response(id="a"))], TWO
    ),
    RuleCase("call_id_duplicate", [U, model(call(id="a"), call(id="a")), user(response(), response())], TWO),
    RuleCase("function_name", [U, model(call("1st")), user(response("1st"))], GOOD),
    RuleCase("function_name", [U, model(call("a" * 65)), user(response("a" * 65))], GOOD),
    RuleCase("call_args", [U, model(call(args="{}")), user(response())], GOOD),
    RuleCase("response_object", [U, model(call()), user(response(value="ok"))], GOOD),
    RuleCase("response_object", [U, model(call()), user(response(value=["ok"]))], GOOD),
    RuleCase("response_empty", [U, model(call()), user(response(value={}))], GOOD),
    RuleCase(
        "signature_base64",
        [U, model({**TEXT, "thoughtSignature": "a=b"}), U],
        [U, model({**TEXT, "thoughtSignature": "-_8"}), U],
    ),
    RuleCase("signature_role", [user({**TEXT, "thoughtSignature": "AAAA"})], [U]),
    RuleCase("media_type", [user(blob(mime="application/zip"))], [user(blob())]),
    RuleCase("media_base64", [user(blob("!"))], [user(blob())]),
    RuleCase("media_empty", [user(blob(""))], [user(blob())]),
    RuleCase("media_size", [user(blob("AAAA" * 7_000_000))], [user(blob(BIG))], also=frozenset({"inline_size"})),
    RuleCase("inline_size", [user(blob(BIG), blob(BIG))], [user(blob(BIG))]),
    RuleCase("type", ["hi"], [U]),
    RuleCase("type", [{"role": "user", "parts": "hi"}], [U]),
    RuleCase("type", [user({"inlineData": PNG})], [user(blob())]),
    RuleCase("type", [user(blob(5))], [user(blob())]),
    RuleCase("key_missing", [user({"inlineData": {"data": PNG}})], [user(blob())]),
    RuleCase(
        "text_empty",
        [user({"fileData": {"fileUri": "", "mimeType": "image/png"}})],
        [user({"fileData": {"fileUri": "gs://bucket/a.png", "mimeType": "image/png"}})],
    ),
    RuleCase("key_missing", [user({"fileData": {"mimeType": "image/png"}})], [U]),
    RuleCase(
        "media_type",
        [U, model(call()), user(response(parts=[blob(mime="application/zip")]))],
        [U, model(call()), user(response(parts=[blob()]))],
    ),
    RuleCase("part_empty", [U, model(call()), user(response(parts=[TEXT]))], GOOD),
    RuleCase("part_empty", [U, model({"thoughtSignature": "AAAA"}), U], [U, model({"executableCode": {}}), U]),
    RuleCase("json_nul", [user({"text": "a\x00b"})], [U]),
    RuleCase("json_surrogate", [user({"text": "half \ud83d"})], [user({"text": "😀"})]),
    RuleCase("json_number", [U, model(call(args={"n": float("inf")})), user(response())], GOOD),
    RuleCase("json_type", [U, model(call(args={"n": b""})), user(response())], GOOD),
    RuleCase("json_key", [U, model(call(args={1: 2})), user(response())], GOOD),
]

DEEP: Any = {}
for _ in range(200):
    DEEP = {"d": DEEP}
CASES.append(RuleCase("json_depth", [U, model(call(args=DEEP)), user(response())], GOOD))


@pytest.mark.parametrize("case", as_params(CASES))
def test_gemini_rejects_what_breaks_the_rule(case: RuleCase) -> None:
    """A history that breaks one rule is reported under that rule and no other (C7)."""
    assert rules_of(validate_gemini(case.rejected)) == {case.rule, *case.also}


@pytest.mark.parametrize("case", as_params(CASES))
def test_gemini_accepts_what_keeps_the_rule(case: RuleCase) -> None:
    """The nearest history that keeps the rule is accepted (C7)."""
    assert validate_gemini(case.accepted) == []


def test_gemini_has_a_rejecting_case_for_every_rule() -> None:
    """No rule of the validator goes without a history that breaks it."""
    needless = {"media_url", "value_unknown"}  # shared checks that this target has no use for
    found = rules_in_source("gemini", "gemini_parts") - needless
    assert found == {case.rule for case in CASES} | {"system_text", "signature_missing"}


def test_gemini_system_instruction_is_text() -> None:
    """The system instruction holds text parts and nothing else (C7)."""
    assert validate_gemini([U], {"parts": [{"text": "be kind"}]}) == []
    assert rules_of(validate_gemini([U], {"parts": [blob()]})) == {"system_text"}
    assert rules_of(validate_gemini([U], {"parts": []})) == {"parts_empty"}
    assert rules_of(validate_gemini([U], "be kind")) == {"type"}


def test_gemini_signatures_are_demanded_in_the_current_turn_only() -> None:
    """Gemini 3 wants a signature on the first call of each step since the user last spoke (C7)."""
    signed = [U, model(call(signature="AAAA"), call()), user(response(), response())]
    old = [*GOOD, model(TEXT), *signed]
    assert validate_gemini(old, thought_signatures=True) == []
    stand_in = [U, model(call(signature="skip_thought_signature_validator")), user(response())]
    assert validate_gemini(stand_in, thought_signatures=True) == []
    unsigned_step = [*signed, model(call()), user(response())]
    assert rules_of(validate_gemini(unsigned_step, thought_signatures=True)) == {"signature_missing"}


def test_gemini_reads_snake_case_too() -> None:
    """The JSON reader takes the snake_case names of fields, and so does the validator (C7)."""
    snake = [
        U,
        model({"function_call": {"name": "look"}}),
        user({"function_response": {"name": "x", "response": {"a": 1}}}),
    ]
    assert rules_of(validate_gemini(snake)) == {"response_name"}


def test_gemini_loose_options_admit_unfinished_histories() -> None:
    """Neighbours of one role and a history that ends with the model are accepted only when asked for (C7)."""
    assert validate_gemini([U, U, model(TEXT)], strict_roles=False, may_end_with_model=True) == []
