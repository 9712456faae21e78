"""Events that people, models and tools say."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kipu.events.content import BlobReference, Content, ProviderMark
from kipu.events.event import Flag, Seq, SessionEvent


class InstructionEvent(SessionEvent):
    """The system prompt from here on. `previous_seq` leads to the one before it (0: none)."""

    event_type: Literal["instruction"] = "instruction"
    content: str
    previous_seq: Seq = 0


class UserMessageEvent(SessionEvent):
    """Someone said something (B11).

    `queued` messages came through a channel and wait until a turn consumes them; they appear in the window where they were
    consumed. A message that a program adds by itself stands where it was added. `busy` is the policy in force when a queued
    one arrived, with `due_at` where it waits for quiet; `deliver` says that the answer goes out through its channel.
    """

    event_type: Literal["user_message"] = "user_message"
    content: Content
    sender_id: str | None = None
    channel: str | None = None
    source_message_id: str | None = None
    reply_to: dict[str, Any] | None = None
    queued: Flag = False
    busy: dict[str, Any] | None = None
    deliver: Flag | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    blobs: list[BlobReference] | None = None


class AgentMessageEvent(SessionEvent):
    """The model answered (B12). `reasoning` is readable thought; what only its provider can read is in `provider.opaque`."""

    event_type: Literal["agent_message"] = "agent_message"
    content: Content
    reasoning: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    state: Literal["complete", "interrupted"] = "complete"
    provider: ProviderMark | None = None
    blobs: list[BlobReference] | None = None


class ToolCallEvent(SessionEvent):
    """The model asked for a tool (B13).

    `tool_call_id` is ours and unique in the session; `provider_call_id` is what the provider wrote, which may repeat.
    Arguments that did not parse are kept as `raw` with `parse_error`.
    """

    event_type: Literal["tool_call"] = "tool_call"
    tool_name: str
    tool_input: dict[str, Any] = Field(default_factory=dict)
    tool_call_id: str
    provider_call_id: str | None = None
    raw: str | None = None
    parse_error: str | None = None
    provider: ProviderMark | None = None


class ToolStartedEvent(SessionEvent):
    """Execution of a call began: from here on it may have had an effect."""

    event_type: Literal["tool_started"] = "tool_started"
    tool_call_id: str


class ToolResultEvent(SessionEvent):
    """A call ended (B14). `synthetic` results were written by Kipu and say why no tool wrote them."""

    event_type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    result: Any = None
    is_error: Flag = False
    error_info: str | None = None
    tool_name: str | None = None
    synthetic: Literal["interrupted", "cancelled", "skipped", "denied"] | None = None
    blob: BlobReference | None = None
    pinned: Flag = False
    usage: dict[str, Any] | None = None  # what the call spent of its turn's budget, such as a helper's whole turn


class ModelCallEvent(SessionEvent):
    """What the model was shown: enough to render it again byte for byte (C6)."""

    event_type: Literal["model_call"] = "model_call"
    model: str
    settings: dict[str, Any] = Field(default_factory=dict)
    window: dict[str, Any]
    tools: str | None = None


class MemoryRecalledEvent(SessionEvent):
    """Memory that the model is shown from here on; `notice` is the line above it, which says what it is worth."""

    event_type: Literal["memory_recalled"] = "memory_recalled"
    facts: list[dict[str, Any]]
    notice: str | None = None
