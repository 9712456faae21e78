"""Models behind pydantic_ai. Import it when a model is wanted, not before.

This module and `pydantic_ai_window` are the only ones that know that library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic_ai import direct, exceptions, messages, models
from pydantic_ai.providers import Provider, infer_provider
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

from kipu.errors import ConfigurationError, ModelError, ModelNameError, ModelStreamCutError
from kipu.ports.model import (
    JsonObject,
    ModelDescription,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelUsage,
    ReasoningDelta,
    ReplyState,
    TextDelta,
    ToolCallDelta,
)
from kipu.runtime.models.opaque import TIED_FIELDS, AssistantPart
from kipu.runtime.models.provider_errors import Category, Failure, translate
from kipu.runtime.models.pydantic_ai_window import ToolNames, WindowMapping, is_a, tool_definitions
from kipu.runtime.models.reply import build_reply, neutral_call
from kipu.runtime.models.reply_stream import ReplyStream
from kipu.runtime.models.settings import provider_settings

# Most specific first: the library's categories are subclasses of one another.
CATEGORIES: tuple[tuple[type[Exception], Category], ...] = (
    (exceptions.ModelContextWindowExceededError, "context"),
    (exceptions.ModelAuthenticationError, "auth"),
    (exceptions.ModelNotFoundError, "not_found"),
    (exceptions.ModelRequestRejectedError, "refused"),
    (exceptions.ModelQuotaExceededError, "quota"),
    (exceptions.ModelRateLimitError, "rate_limit"),
    (exceptions.ModelUnavailableError, "unavailable"),
    (exceptions.ModelServerError, "unavailable"),
    (exceptions.ModelConnectionError, "unreachable"),
    (exceptions.ModelRequestTimeout, "unreachable"),
    (exceptions.ModelHTTPError, "status"),
    (exceptions.ModelAPIError, "unavailable"),
    (exceptions.UnexpectedModelBehavior, "answer"),
)
# What the library raises where it cannot put a part of the window into the provider's terms, before anything is sent.
UNSENDABLE = (NotImplementedError, RuntimeError)
# The vendors' clients that would try again by themselves; other models warn about a setting they do not have.
RETRYING_CLIENTS = ("OpenAIChatModel", "OpenAIResponsesModel", "AnthropicModel", "GroqModel")
# Anthropic's signatures hold for every account; others seal reasoning for the account that asked.
ACCOUNTLESS_SYSTEMS = frozenset({"anthropic"})
CACHING_HOST = "api.anthropic.com"
# OpenAI-compatible servers take unsealed thinking back in the field it came in. Any other thinking without a seal, such as
# what was cut out of the text by its tags, would go back as visible text.
THINKING_FIELDS = frozenset({"reasoning", "reasoning_content"})


def open_provider_client(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    key_variable: str = "the provider's key variable",
) -> PydanticAIClient:
    """Return a client for `provider:model`. Base URL and key are for OpenAI, Anthropic and Ollama; others read their own.

    Raises:
        ModelNameError: pydantic_ai knows no such provider.
        ConfigurationError: the provider's key or package is missing.
    """

    def provider_for(prefix: str) -> Provider[Any]:
        return _provider(prefix, base_url, api_key)

    try:
        model = models.infer_model(name, provider_factory=provider_for)
    except (ImportError, exceptions.UserError) as error:
        raise ConfigurationError(reason=f"model {name!r}: {error}") from error
    except ValueError as error:
        raise ModelNameError(model=name, reason=str(error)) from error
    return PydanticAIClient(model, name=name, key_variable=key_variable)


def _provider(prefix: str, base_url: str | None, api_key: str | None) -> Provider[Any]:
    if base_url is None and api_key is None:
        return infer_provider(prefix)
    if prefix.startswith("openai"):
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIProvider(base_url=base_url, api_key=api_key)
    if prefix == "anthropic":
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicProvider(base_url=base_url, api_key=api_key)
    if prefix == "ollama":
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaProvider(base_url=base_url, api_key=api_key)
    return infer_provider(prefix)


class PydanticAIClient:
    """Ask a model that pydantic_ai reaches (contract: `kipu.ports.model.ModelClient`)."""

    def __init__(self, model: models.Model, *, name: str, key_variable: str = "the provider's key variable") -> None:
        self._model = model
        self._name = name
        self._key_variable = key_variable
        self._entered = False
        self._secret = _secret(model)
        self._account = _account(model, self._secret)

    @property
    def name(self) -> str:
        """Return the name it was chosen by."""
        return self._name

    @property
    def context_window(self) -> int | None:
        """Return what the library knows about the model's window."""
        return self._model.context_window

    def describe(self) -> ModelDescription:
        """Return the description; it names no secret."""
        return ModelDescription(
            name=self._name,
            provider=self._model.system,
            model=self._model.model_name,
            endpoint=self._model.base_url,
            account=self._account,
            context_window_tokens=self.context_window,
        )

    def stream(self, request: ModelRequest) -> ReplyStream:
        """Return the answer as it comes."""
        names = ToolNames(request.tools)
        answer = _Answer(self._model, name=self._name, account=self._account, names=names)
        return ReplyStream(self._events(request, answer), answer.partial)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._entered:
            self._entered = False
            await self._model.__aexit__(None, None, None)

    async def _events(self, request: ModelRequest, answer: _Answer) -> AsyncGenerator[ModelEvent, None]:
        settings = self._settings(request.settings)
        mapping = WindowMapping(self._model, self._account, answer.names, request.read_blob)
        window = await mapping.of(request.messages)
        tools = tool_definitions(request.tools, answer.names)
        try:
            if not self._entered:
                self._entered = True
                await self._model.__aenter__()
            async with direct.model_request_stream(
                self._model,
                window,
                model_settings=cast("ModelSettings", settings),
                model_request_parameters=models.ModelRequestParameters(function_tools=tools),
                instrument=False,
            ) as response:
                answer.response = response
                async for event in response:
                    for delta in answer.deltas(event):
                        yield delta
            yield answer.whole()
        except ModelError:
            raise
        except exceptions.UserError as error:
            raise ConfigurationError(reason=f"model {self._name!r}: {error}") from error
        except Exception as error:
            raise self._translated(error, answering=answer.began) from error

    def _settings(self, settings: JsonObject) -> dict[str, Any]:
        chosen = provider_settings(settings)
        if is_a(self._model, "OpenAIResponsesModel"):
            chosen.setdefault("openai_store", False)  # the session is the only copy
        if is_a(self._model, "AnthropicModel") and urlsplit(self._model.base_url or "").hostname == CACHING_HOST:
            # Windows grow at their end (C9); here that saves nothing unless the request asks for it. Not every gateway knows.
            chosen.setdefault("anthropic_cache", True)
        if any(is_a(self._model, name) for name in RETRYING_CLIENTS):
            # The caller decides about retries, with the session in view; a client that retries hides what the provider said.
            chosen.setdefault("max_retries", 0)
        return chosen

    def _translated(self, error: Exception, *, answering: bool) -> ModelError:
        unsent = not answering and isinstance(error, UNSENDABLE) and not isinstance(error, exceptions.AgentRunError)
        other: Category = "refused" if unsent else "answer"
        category = next((found for kind, found in CATEGORIES if isinstance(error, kind)), other)
        failure = Failure(
            category,
            str(error),
            body=getattr(error, "body", None),
            status=getattr(error, "status_code", None),
            retry_after_s=getattr(error, "retry_after", None),
            answering=answering,
        )
        return translate(
            failure,
            model=self._name,
            endpoint=self._model.base_url,
            key_variable=self._key_variable,
            secret=self._secret,
        )


def _secret(model: models.Model) -> str | None:
    key = getattr(getattr(model.provider, "client", None), "api_key", None)
    return key if isinstance(key, str) and key else None


def _account(model: models.Model, secret: str | None) -> str:
    owner = "" if model.system in ACCOUNTLESS_SYSTEMS else secret or ""
    return hashlib.sha256(f"{model.base_url}\0{owner}".encode()).hexdigest()[:16]


class _Answer:
    """Follow one response: deltas out, the whole or partial reply at the end."""

    def __init__(self, model: models.Model, *, name: str, account: str, names: ToolNames) -> None:
        self._model = model
        self._name = name
        self._account = account
        self.names = names
        self._calls: dict[int, int] = {}
        self.response: models.StreamedResponse | None = None
        self.began = False

    def deltas(self, event: messages.ModelResponseStreamEvent) -> list[ModelEvent]:
        """Return what the event adds; parts that Kipu has no name for add nothing."""
        if isinstance(event, messages.PartStartEvent):
            self.began = True
            return self._started(event.index, event.part)
        if isinstance(event, messages.PartDeltaEvent):
            return self._grown(event.index, event.delta)
        return []

    def _started(self, index: int, part: messages.ModelResponsePart) -> list[ModelEvent]:
        if isinstance(part, messages.TextPart):
            return [TextDelta(part.content)] if part.content else []
        if isinstance(part, messages.ThinkingPart):
            return [ReasoningDelta(part.content)] if part.content else []
        if isinstance(part, messages.ToolCallPart):
            place = self._calls.setdefault(index, len(self._calls))
            return [ToolCallDelta(place, part.tool_call_id, self.names.given(part.tool_name), _arguments(part.args))]
        return []

    def _grown(self, index: int, delta: messages.ModelResponsePartDelta) -> list[ModelEvent]:
        if isinstance(delta, messages.TextPartDelta):
            return [TextDelta(delta.content_delta)] if delta.content_delta else []
        if isinstance(delta, messages.ThinkingPartDelta):
            return [ReasoningDelta(delta.content_delta)] if delta.content_delta else []
        if isinstance(delta, messages.ToolCallPartDelta) and index in self._calls:
            added = _arguments(delta.args_delta)
            return [ToolCallDelta(self._calls[index], name=delta.tool_name_delta or "", arguments=added)]
        return []

    def whole(self) -> ModelReply:
        """Return the finished reply.

        Raises:
            ModelStreamCutError: the stream ended without the provider's last word.
        """
        if not self._ended_properly():
            endpoint = self._model.base_url or "the provider"
            reason = "the connection was closed before the last word"
            raise ModelStreamCutError(model=self._name, endpoint=endpoint, reason=reason, retry_after_s=None)
        return self._reply("complete")

    def _ended_properly(self) -> bool:
        response = self.response.get() if self.response else None
        if response is None or response.finish_reason is None or response.state == "incomplete":
            return False
        if not is_a(self._model, "OpenAIChatModel"):
            return True
        # Here the library makes up a finish reason when none came. Usage comes last, so it is as good a sign of the end.
        details = response.provider_details or {}
        return "finish_reason" in details or "refusal" in details or _usage(response).measured

    def partial(self) -> ModelReply:
        """Return what has arrived."""
        return self._reply("interrupted")

    def _reply(self, state: ReplyState) -> ModelReply:
        response = self.response.get() if self.response else messages.ModelResponse(parts=[])
        return build_reply(
            [part for found in response.parts if (part := _part(found, self.names)) is not None],
            provider=self._model.system,
            model=self._model.model_name,
            state=state,
            usage=_usage(response),
            finish_reason=response.finish_reason,
            served_model=response.model_name,
            response_id=response.provider_response_id,
            account=self._account,
        )


def _arguments(args: str | Mapping[str, Any] | None) -> str:
    if args is None or isinstance(args, str):
        return args or ""
    return json.dumps(args, ensure_ascii=False)


def _usage(response: messages.ModelResponse) -> ModelUsage:
    usage = response.usage
    return ModelUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.output_reasoning_tokens,
        measured=bool(usage.input_tokens or usage.output_tokens),
    )


def _part(part: messages.ModelResponsePart, names: ToolNames) -> AssistantPart | None:
    if isinstance(part, messages.TextPart):
        return AssistantPart("text", part.content, tied=_tied(part))
    if isinstance(part, messages.ThinkingPart):
        sealed = part.signature or part.provider_details or part.id in THINKING_FIELDS
        return AssistantPart("thinking", part.content, tied=_tied(part) if sealed else None)
    if isinstance(part, messages.ToolCallPart):
        call = neutral_call(part.tool_call_id, names.given(part.tool_name), arguments=_arguments(part.args))
        return AssistantPart("tool_call", call=call, tied=_tied(part))
    return None


def _tied(part: messages.TextPart | messages.ThinkingPart | messages.ToolCallPart) -> dict[str, Any] | None:
    tied = {name: value for name in TIED_FIELDS if (value := getattr(part, name, None)) is not None}
    # The provider's name alone ties nothing.
    return to_jsonable_python(tied) if set(tied) - {"provider_name"} else None
