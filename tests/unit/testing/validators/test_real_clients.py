"""The bodies that real clients put on the wire are accepted."""

from __future__ import annotations

import base64
import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from kipu.testing.validators import validate
from tests.unit.testing.validators.rule_case import PNG

_PROVIDERS = {"openai_chat": "openai", "openai_responses": "openai", "anthropic": "anthropic"}


class _Wire:
    """Keep what a client sends, and refuse it, so that nothing leaves the machine."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._keep))

    def _keep(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"type": "invalid_request_error", "message": "kept"}})

    def model(self, target: str) -> Model:
        if target == "anthropic":
            client = anthropic.AsyncAnthropic(api_key="none", http_client=self.http, max_retries=0)
            return AnthropicModel("claude-opus-4-8", provider=AnthropicProvider(anthropic_client=client))
        provider = OpenAIProvider(
            openai_client=openai.AsyncOpenAI(api_key="none", http_client=self.http, max_retries=0)
        )
        if target == "openai_chat":
            return OpenAIChatModel("gpt-4o", provider=provider)
        return OpenAIResponsesModel("gpt-5", provider=provider)


def _history(provider: str, *, with_results: bool) -> list[ModelMessage]:
    results = [
        ToolReturnPart("look", "one", tool_call_id="call_1"),
        ToolReturnPart("look", {"x": 1}, tool_call_id="call_2"),
    ]
    thought = ThinkingPart("hm", signature="EqQB", provider_name=provider)
    calls = [
        ToolCallPart("look", {"a": 1}, tool_call_id="call_1"),
        ToolCallPart("look", '{"a": 2}', tool_call_id="call_2"),
    ]
    picture = BinaryContent(base64.b64decode(PNG), media_type="image/png")
    return [
        ModelRequest(parts=[SystemPromptPart("be kind"), UserPromptPart(["看", picture])]),
        ModelResponse(parts=[thought, TextPart("I look."), *calls], provider_name=provider),
        ModelRequest(parts=[*(results if with_results else ()), UserPromptPart("and be quick")]),
    ]


@pytest.mark.parametrize("target", list(_PROVIDERS))
@pytest.mark.parametrize("with_results", [True, False], ids=["paired", "unpaired"])
async def test_bodies_of_real_clients_are_judged_by_their_pairs(target: str, with_results: bool) -> None:
    """A body from the wire is accepted when calls have their results, and refused when they have not (A63, C7)."""
    wire = _Wire()
    tool = ToolDefinition(name="look", parameters_json_schema={"type": "object", "properties": {}})
    async with wire.http:
        with pytest.raises(ModelAPIError):
            await model_request(
                wire.model(target),
                _history(_PROVIDERS[target], with_results=with_results),
                model_settings={"max_tokens": 1024},
                model_request_parameters=ModelRequestParameters(function_tools=[tool]),
            )
    violations = validate(target, wire.bodies[0])
    if with_results:
        assert violations == []
    else:
        assert {violation.rule.partition(".")[2] for violation in violations} & {
            "tool_result_missing",
            "output_missing",
        }
