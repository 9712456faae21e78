"""Events of turns: what consumed which message, who waits for whom, how it ended."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kipu.events.event import Seq, SessionEvent, UtcDatetime


class TurnStartedEvent(SessionEvent):
    """A turn began and took these messages out of the mailbox."""

    event_type: Literal["turn_started"] = "turn_started"
    turn_id: str
    consumes: list[Seq] = Field(default_factory=list)
    policy: str = "followup"
    worker: str | None = None
    token: int | None = None


class TurnSteeredEvent(SessionEvent):
    """Messages joined a running turn at a boundary."""

    event_type: Literal["turn_steered"] = "turn_steered"
    turn_id: str
    consumes: list[Seq]


class TurnParkedEvent(SessionEvent):
    """The turn waits for people and holds nothing while it does."""

    event_type: Literal["turn_parked"] = "turn_parked"
    turn_id: str
    waits_for: list[str]
    until: UtcDatetime | None = None


class TurnResumedEvent(SessionEvent):
    """A worker went on with an open turn."""

    event_type: Literal["turn_resumed"] = "turn_resumed"
    turn_id: str
    worker: str | None = None
    token: int | None = None


class StopRequestedEvent(SessionEvent):
    """Somebody wants the turn to end."""

    event_type: Literal["stop_requested"] = "stop_requested"
    turn_id: str
    mode: str = "stop"


class ApprovalRequestEvent(SessionEvent):
    """A person is asked about one call, before it is shown to them (C15)."""

    event_type: Literal["approval_request"] = "approval_request"
    approval_id: str
    tool_call_id: str
    arguments_hash: str
    shown: dict[str, Any] = Field(default_factory=dict)
    expires_at: UtcDatetime | None = None


class ApprovalDecisionEvent(SessionEvent):
    """A person decided, or answered. The first decision is the one that counts."""

    event_type: Literal["approval_decision"] = "approval_decision"
    approval_id: str
    decision: str
    by: str
    scope: str | None = None
    arguments: dict[str, Any] | None = None  # what to run it with instead, where a person changed them
    answer: str | None = None  # to a question
    reason: str | None = None


class TurnFinishedEvent(SessionEvent):
    """The turn ended."""

    event_type: Literal["turn_finished"] = "turn_finished"
    turn_id: str
    outcome: Literal["completed", "failed", "cancelled", "interrupted"] = "completed"
    usage: dict[str, Any] | None = None
    error: str | None = None


class MessageSettledEvent(SessionEvent):
    """Messages that will not get a turn of their own, and why."""

    event_type: Literal["message_settled"] = "message_settled"
    seqs: list[Seq]
    reason: Literal["merged", "dropped", "expired", "superseded", "cancelled"]


class DeliveryEvent(SessionEvent):
    """A reply goes out, went out, or failed to. `answers` are the messages that nobody owes an answer any more."""

    event_type: Literal["delivery"] = "delivery"
    message_seq: Seq
    address: dict[str, Any] = Field(default_factory=dict)
    status: str
    platform_message_id: str | None = None
    answers: list[Seq] | None = None
    by: str | None = None  # of a claim: the process that sends, and until when nobody else does
    until: UtcDatetime | None = None
