"""Neutral windows and tools in pydantic_ai's terms: one to one, but for what a provider has no place for."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_ai import messages, models
from pydantic_ai.tools import ToolDefinition

from kipu.context.identifier import UniqueIds, safe_id, safe_name
from kipu.context.media import IMAGE_TYPES, placeholder
from kipu.context.neutral import arguments
from kipu.context.openai_chat import error_marked
from kipu.errors import BlobNotFoundError
from kipu.ports.model import BlobReader, JsonObject
from kipu.runtime.models.opaque import AssistantPart, unpack_parts

# They have a place for "this result is an error". For others the library makes JSON of the text, which nobody can read.
ERROR_MARKING_MODELS = ("AnthropicModel", "BedrockConverseModel", "GoogleModel")
CHAT_AUDIO = frozenset({"audio/wav", "audio/mpeg"})
MAX_NAME_CHARS = 64
BEHIND = "shown behind the results"

UserPart = str | messages.BinaryContent


def is_a(model: models.Model, *class_names: str) -> bool:
    """Return whether the model is of such a class, without importing a vendor's package that may not be there."""
    return any(kind.__name__ in class_names for kind in type(model).__mro__)


class ToolNames:
    """Give each tool a name that every provider takes, and find the tool again by it; the same tools get the same names."""

    def __init__(self, tools: Sequence[JsonObject]) -> None:
        self._shown: dict[str, str] = {}
        self._given: dict[str, str] = {}
        for tool in sorted(tools, key=lambda tool: safe_name(tool["name"]) != tool["name"]):
            given = tool["name"]
            shown = safe_name(given)
            if shown in self._given and self._given[shown] != given:
                mark = hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[:8]
                shown = f"{shown[: MAX_NAME_CHARS - 9]}_{mark}"
            self._shown[given] = shown
            self._given[shown] = given

    def shown(self, given: str) -> str:
        """Return the name under which the provider knows the tool; also of one that is not offered any more."""
        return self._shown.get(given) or safe_name(given)

    def given(self, shown: str) -> str:
        """Return the tool's own name; what a model made up stays as it is."""
        return self._given.get(shown, shown)


def tool_definitions(tools: Sequence[JsonObject], names: ToolNames) -> list[ToolDefinition]:
    """Return the tools as they are offered.

    Unless a tool asks for strictness it is sent without: where the library decides, objects that take any key would be sent
    as objects that take none.
    """
    return [
        ToolDefinition(
            name=names.shown(tool["name"]),
            description=tool.get("description"),
            parameters_json_schema=dict(tool.get("parameters") or {"type": "object", "properties": {}}),
            strict=bool(tool.get("strict")),
        )
        for tool in tools
    ]


@dataclass(frozen=True, slots=True)
class WindowMapping:
    """Turn the neutral messages of one request into the library's."""

    model: models.Model
    account: str
    names: ToolNames
    read_blob: BlobReader | None = None
    item_ids: UniqueIds = field(default_factory=UniqueIds)

    async def of(self, window: Sequence[JsonObject]) -> list[messages.ModelMessage]:
        """Return the messages; what stands between two answers is one request, as the library wants it."""
        result: list[messages.ModelMessage] = []
        waiting: list[messages.ModelRequestPart] = []
        for message in window:
            if message["role"] != "assistant":
                waiting.extend(await self._request_parts(message))
                continue
            if waiting:
                result.append(messages.ModelRequest(parts=waiting))
                waiting = []
            result.append(self._response(message))
        if waiting:
            result.append(messages.ModelRequest(parts=waiting))
        return result

    async def _request_parts(self, message: JsonObject) -> list[messages.ModelRequestPart]:
        content = message["content"]
        if message["role"] == "system":
            return [messages.SystemPromptPart(part["text"]) for part in content]
        if message["role"] == "tool":
            return await self._results(content)
        prompt = [await self._user_part(part) for part in content]
        only_text = all(isinstance(part, str) for part in prompt)
        if only_text and (len(prompt) == 1 or is_a(self.model, "OpenAIChatModel")):
            # Many servers of this format take a user's text, and no list of texts.
            return [messages.UserPromptPart("\n".join(cast("list[str]", prompt)))]
        return [messages.UserPromptPart(prompt)]

    async def _results(self, results: Sequence[JsonObject]) -> list[messages.ModelRequestPart]:
        parts: list[messages.ModelRequestPart] = []
        behind: list[UserPart] = []
        for result in results:
            content = [await self._result_part(piece, result) for piece in result["content"]]
            if is_a(self.model, "OpenAIChatModel"):
                behind += _moved(content, result)
                content = [piece if isinstance(piece, str) else _named(piece, result) for piece in content]
            parts.append(self._result(result, content))
        # Chat Completions takes text only in results, and nothing between them.
        return [*parts, messages.UserPromptPart(behind)] if behind else parts

    def _result(self, result: JsonObject, content: Sequence[UserPart]) -> messages.ToolReturnPart[Any]:
        is_error = bool(result.get("is_error"))
        marks = is_a(self.model, *ERROR_MARKING_MODELS)
        texts = [piece for piece in content if isinstance(piece, str)]
        told: Any = list(content)
        if len(texts) == len(content):
            told = "\n".join(texts)
            told = told if marks else error_marked(told, is_error=is_error)
        return messages.ToolReturnPart(
            tool_name=self.names.shown(result["name"]),
            tool_call_id=safe_id(result["id"]),
            content=told,
            outcome="failed" if is_error and marks else "success",
        )

    async def _result_part(self, part: JsonObject, result: JsonObject) -> UserPart:
        if part["type"] == "media" and result.get("is_error"):
            return placeholder(_sized(part))  # an error is text, or providers refuse it
        return await self._user_part(part)

    async def _user_part(self, part: JsonObject) -> UserPart:
        if part["type"] == "text":
            return str(part["text"])
        if not self._takes(part["media_type"]):
            return placeholder(_sized(part))
        content = await self._bytes(part)
        return messages.BinaryContent(content, media_type=part["media_type"]) if content else placeholder(_sized(part))

    async def _bytes(self, part: JsonObject) -> bytes:
        if "data" in part:
            return _decoded(part["data"])
        if self.read_blob is None:
            return b""
        try:
            return await self.read_blob(part["blob"])
        except BlobNotFoundError:  # a picture that is lost is told of, and bricks no session
            return b""

    def _takes(self, media_type: str) -> bool:
        """Return whether the model takes such media; asked of the library, which refuses the whole request otherwise."""
        profile = self.model.profile
        probe = messages.BinaryContent(b"", media_type=media_type)
        if probe.is_image:
            return media_type in IMAGE_TYPES and profile.get("supports_image_input", True)
        if probe.is_audio:
            taken = media_type in CHAT_AUDIO or not is_a(self.model, "OpenAIChatModel", "OpenAIResponsesModel")
            return taken and profile.get("supports_audio_file_input", True)
        if probe.is_video:
            return profile.get("supports_video_input", True)
        documents: frozenset[str] = profile.get("supported_document_media_types", frozenset())
        return media_type in documents and profile.get("supports_document_input", True)

    def _response(self, message: JsonObject) -> messages.ModelResponse:
        parts = unpack_parts(
            message["content"], provider=self.model.system, model=self.model.model_name, account=self.account
        )
        ids: dict[str, str] = {}
        return messages.ModelResponse(
            parts=[self._sent(part, ids) for part in parts],
            provider_name=self.model.system,
            provider_url=self.model.base_url,
            model_name=self.model.model_name,
        )

    def _sent(self, part: AssistantPart, ids: dict[str, str]) -> messages.ModelResponsePart:
        tied = self._tied(part, ids)
        if part.kind == "thinking":
            return messages.ThinkingPart(part.text, **tied)
        if part.kind == "text":
            return messages.TextPart(part.text, **tied)
        call = dict(part.call or {})
        given = arguments(call) if "raw" in call else dict(call.get("input") or {})
        return messages.ToolCallPart(self.names.shown(call["name"]), given, safe_id(call["id"]), **tied)

    def _tied(self, part: AssistantPart, ids: dict[str, str]) -> dict[str, Any]:
        """Return what the provider tied to a part; an item id that an earlier answer has already must not stand twice.

        Within an answer ids may repeat: pieces of one item have the same. `ids` are those of the answer.
        """
        tied: dict[str, Any] = dict(part.tied or {})
        given = tied.get("id")
        if given is None or not is_a(self.model, "OpenAIResponsesModel"):
            return tied
        fresh = ids.get(given) or self.item_ids.take(given)
        ids[given] = fresh
        if fresh != given and part.kind != "thinking":
            del tied["id"]  # texts and calls need none
            return tied
        return {**tied, "id": fresh}


def _moved(content: Sequence[UserPart], result: JsonObject) -> Iterator[UserPart]:
    """Return the media of a result as they stand behind all results, each under its name."""
    for piece in content:
        if not isinstance(piece, str):
            yield f"[{piece.media_type} from the tool {result['name']}:]"
            yield piece


def _named(piece: messages.BinaryContent, result: JsonObject) -> str:
    return f"[{piece.media_type} from the tool {result['name']}, {BEHIND}]"


def _sized(part: JsonObject) -> dict[str, Any]:
    size = part["size"] if "size" in part else len(part.get("data", "")) * 3 // 4
    return {**part, "size": size}


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return b""
