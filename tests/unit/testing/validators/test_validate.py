"""One door judges whole request bodies of every target, whatever they hold."""

from __future__ import annotations

import copy
import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kipu.errors import InputError
from kipu.testing.validators import TARGETS, Violation, validate
from tests.unit.testing.validators.agent_payloads import ANTHROPIC, GEMINI, OPENAI_RESPONSES, PAYLOADS
from tests.unit.testing.validators.rule_case import rules_of

_HISTORY = {"openai_chat": "messages", "openai_responses": "input", "anthropic": "messages", "gemini": "contents"}


@pytest.mark.parametrize("target", TARGETS)
def test_validate_accepts_an_ordinary_agent_session(target: str) -> None:
    """A coding session with images, parallel calls, reasoning and a failed call is accepted by every target (C7)."""
    assert validate(target, PAYLOADS[target]) == []


@pytest.mark.parametrize("target", TARGETS)
def test_validate_leaves_the_payload_as_it_was(target: str) -> None:
    """Judging a body changes nothing in it."""
    payload = copy.deepcopy(PAYLOADS[target])
    validate(target, payload)
    assert payload == PAYLOADS[target]


@pytest.mark.parametrize("target", TARGETS)
def test_validate_reports_each_dropped_message(target: str) -> None:
    """Whichever message with calls or results is dropped from the middle, the rest is not accepted (A64, C7)."""
    key = _HISTORY.get(target, "messages")
    history = PAYLOADS[target][key]
    for index, message in enumerate(history):
        text = str(message)
        if any(word in text for word in ("tool_call", "tool_use", "function_call", "functionCall", "functionResponse")):
            rest = {**PAYLOADS[target], key: history[:index] + history[index + 1 :]}
            assert validate(target, rest), f"{target} without {key}/{index}"


@pytest.mark.parametrize("target", TARGETS)
def test_validate_reports_an_empty_body(target: str) -> None:
    """A body without a history is never accepted (C7)."""
    assert validate(target, {})


def test_validate_names_the_targets_when_one_is_unknown() -> None:
    """An unknown target is an error that lists the known ones, never an empty list."""
    with pytest.raises(InputError, match="openai_chat, openai_responses, anthropic, gemini, neutral"):
        validate("cohere", {"messages": []})


def test_validate_heeds_what_bears_on_the_history() -> None:
    """Thinking, storage and continuation are read from the body (C7)."""
    assistant = ANTHROPIC["messages"][1]
    without = {**assistant, "content": assistant["content"][1:]}
    body = {**ANTHROPIC, "messages": [ANTHROPIC["messages"][0], without, ANTHROPIC["messages"][2]]}
    assert rules_of(validate("anthropic", body)) == {"thinking_missing"}
    assert validate("anthropic", {**body, "thinking": {"type": "adaptive"}}) == []

    by_id = [item if item.get("type") != "reasoning" else {**item} for item in OPENAI_RESPONSES["input"]]
    del by_id[1]["encrypted_content"]
    assert rules_of(validate("openai_responses", {**OPENAI_RESPONSES, "input": by_id})) == {"not_stored"}
    assert validate("openai_responses", {**OPENAI_RESPONSES, "input": by_id, "store": True}) == []

    outputs = {"input": OPENAI_RESPONSES["input"][4:6]}
    assert rules_of(validate("openai_responses", outputs)) == {"output_orphan", "user_missing"}
    assert validate("openai_responses", {**outputs, "previous_response_id": "resp_1"}) == []


def test_validate_admits_system_messages_of_a_client_that_names_its_model() -> None:
    """A bare history has no system messages; a whole body may have them in their place (C7)."""
    history = {"messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": "be brief"}]}
    assert rules_of(validate("anthropic", history)) == {"role_unknown"}
    assert validate("anthropic", {**history, "model": "claude-opus-4-8"}) == []


def test_validate_reads_both_names_of_the_system_instruction() -> None:
    """Gemini's system instruction is judged under its camelCase and its snake_case name (C7)."""
    bad: dict[str, Any] = {"parts": []}
    for key in ("systemInstruction", "system_instruction"):
        assert rules_of(validate("gemini", {key: bad, "contents": GEMINI["contents"]})) == {"parts_empty"}


@pytest.mark.parametrize("target", TARGETS)
def test_validate_judges_histories_that_are_not_sent_yet(target: str) -> None:
    """A history that ends with an answer is accepted with `may_end_with_model`, and by the targets that take it so."""
    key = _HISTORY.get(target, "messages")
    answers: dict[str, Any] = {
        "gemini": {"role": "model", "parts": [{"text": "Done."}]},
        "openai_chat": {"role": "assistant", "content": "Done."},
        "openai_responses": {"role": "assistant", "content": "Done."},
    }
    answer = answers.get(target, {"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
    payload = {**PAYLOADS[target], key: [*PAYLOADS[target][key], answer]}
    payload.pop("thinking", None)
    assert validate(target, payload, may_end_with_model=True) == []
    refused = {"anthropic": {"ends_with_assistant"}, "gemini": {"ends_with_model"}, "neutral": {"ends_with_assistant"}}
    assert rules_of(validate(target, payload)) == refused.get(target, set())


def test_validators_share_nothing_with_what_they_judge() -> None:
    """The validators import only the errors and each other, so that no mistake can stand on both sides (C7)."""
    sources = [entry for entry in files("kipu.testing.validators").iterdir() if entry.name.endswith(".py")]
    imported = {
        module for entry in sources for module in re.findall(r"^from (kipu[\w.]*)", entry.read_text(), re.MULTILINE)
    }
    assert len(sources) > 5
    assert {m for m in imported if not m.startswith("kipu.testing.validators")} == {"kipu.errors"}


def test_violation_reads_as_one_line() -> None:
    """A violation prints its rule, its place and what is wrong, for the message of a failing test."""
    assert str(Violation("gemini.parts_empty", "/contents/0/parts", "needs one")) == (
        "gemini.parts_empty at /contents/0/parts: needs one"
    )


_KEY_TEXT = (
    "role content parts type text id name input arguments tool_calls function tool_use_id tool_call_id call_id output "
    "functionCall functionResponse args response source media_type data thinking signature summary blob size raw "
    "is_error cache_control image_url url custom file encrypted_content status thoughtSignature inlineData"
)
_WORD_TEXT = (
    "user assistant model tool system text tool_use tool_result tool_call function_call function_call_output reasoning "
    "thinking message media image image_url file function custom base64 server_tool_use web_search_tool_result"
)
_KEYS = st.sampled_from(_KEY_TEXT.split())
_WORDS = st.sampled_from(_WORD_TEXT.split())
_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=2) | _WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=25,
)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(st.dictionaries(_KEYS, _JUNK, max_size=6), max_size=5) | _JUNK, top=_JUNK)
def test_validate_never_raises(target: str, history: Any, top: Any) -> None:
    """Whatever stands where a history should be, the validators report and do not fail (C7)."""
    payload = {"messages": history, "input": history, "contents": history, "system": top, "instructions": top}
    violations = validate(target, {**payload, "systemInstruction": top, "tools": top, "thinking": top})
    assert all(violation.rule.startswith(f"{target}.") and violation.message for violation in violations)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_validate_never_raises_when_one_value_is_replaced(target: str, data: st.DataObject) -> None:
    """A good body with any one value replaced by junk is judged without failing, and the original stays accepted."""
    payload = copy.deepcopy(PAYLOADS[target])
    node: Any = payload[_HISTORY.get(target, "messages")]
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        child = node[key]
        if not child or not isinstance(child, (dict, list)) or data.draw(st.booleans()):
            node[key] = data.draw(_JUNK)
            break
        node = child
    validate(target, payload)
    assert validate(target, PAYLOADS[target]) == []
