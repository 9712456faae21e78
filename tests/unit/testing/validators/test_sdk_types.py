"""What the validators accept is also what the providers' own Python types describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from kipu.testing.validators import validate_anthropic, validate_openai_responses
from tests.unit.testing.validators import test_anthropic_messages, test_openai_chat, test_openai_responses
from tests.unit.testing.validators.agent_payloads import PAYLOADS
from tests.unit.testing.validators.rule_case import RuleCase, rules_of

_SAMPLES: dict[str, tuple[Sequence[RuleCase], str]] = {
    "openai_chat": (test_openai_chat.CASES, "messages"),
    "openai_responses": (test_openai_responses.CASES, "input"),
    "anthropic": (test_anthropic_messages.CASES, "messages"),
}


def _type_of(target: str) -> Any:
    return {
        "openai_chat": ChatCompletionMessageParam,
        "openai_responses": ResponseInputItemParam,
        "anthropic": MessageParam,
    }[target]


@pytest.mark.parametrize("target", list(_SAMPLES))
def test_accepted_histories_conform_to_the_sdk_types(target: str) -> None:
    """Every history that a validator's tests accept is one that the official client's types admit (C7)."""
    adapter: TypeAdapter[Any] = TypeAdapter(_type_of(target))
    cases, key = _SAMPLES[target]
    for history in [*(case.accepted for case in cases), PAYLOADS[target][key]]:
        for message in history if isinstance(history, list) else ():
            adapter.validate_python(message)


def _literals(hint: Any) -> Iterator[str]:
    for part in get_args(hint):
        if isinstance(part, str):
            yield part
        else:
            yield from _literals(part)


def _types_in(union: Any) -> set[str]:
    members = [member for member in get_args(union) if hasattr(member, "__total__")]
    return {kind for member in members for kind in _literals(get_type_hints(member).get("type"))}


def test_every_item_type_of_the_sdk_is_known() -> None:
    """No item of the Responses API is refused for its type alone (C7)."""
    kinds = _types_in(ResponseInputItemParam)
    assert {"function_call", "reasoning", "item_reference"} <= kinds
    unknown = {kind for kind in kinds if "item_unknown" in rules_of(validate_openai_responses([{"type": kind}]))}
    assert unknown == set()


def test_every_block_type_of_the_sdk_is_known() -> None:
    """Each content block of the Messages API is known in a user's or in the model's messages (C7)."""
    user, assistant = get_args(MessageParam)[:2]
    for message in (user, assistant):
        blocks = next(hint for hint in get_args(get_type_hints(message)["content"]) if hint is not str)
        kinds = _types_in(get_args(blocks)[0])
        assert {"text", "tool_use", "tool_result", "thinking"} <= kinds
        refused = {
            kind
            for kind in kinds
            if all(
                "block_unknown" in rules_of(validate_anthropic([{"role": role, "content": [{"type": kind}]}]))
                for role in ("user", "assistant")
            )
        }
        assert refused == set()
