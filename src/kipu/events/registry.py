"""The closed set of event types."""

from __future__ import annotations

from types import MappingProxyType

from kipu.events import access, boundary, conversation, turn
from kipu.events.event import SessionEvent

_CLASSES: tuple[type[SessionEvent], ...] = (
    boundary.SessionInitEvent,
    conversation.InstructionEvent,
    conversation.UserMessageEvent,
    turn.TurnStartedEvent,
    turn.TurnSteeredEvent,
    turn.TurnParkedEvent,
    turn.TurnResumedEvent,
    turn.StopRequestedEvent,
    conversation.MemoryRecalledEvent,
    conversation.ModelCallEvent,
    conversation.AgentMessageEvent,
    conversation.ToolCallEvent,
    conversation.ToolStartedEvent,
    conversation.ToolResultEvent,
    turn.ApprovalRequestEvent,
    turn.ApprovalDecisionEvent,
    turn.TurnFinishedEvent,
    turn.MessageSettledEvent,
    boundary.CompactionEvent,
    boundary.ConsolidationEvent,
    boundary.RewindEvent,
    boundary.MetadataChangedEvent,
    boundary.StatusChangedEvent,
    boundary.KeyBoundEvent,
    boundary.EventPinnedEvent,
    access.MembersChangedEvent,
    access.AccessDeniedEvent,
    turn.DeliveryEvent,
    boundary.NoteEvent,
    boundary.DamagedEvent,
    boundary.ForkDetachedEvent,
)

EVENT_CLASSES = MappingProxyType({cls.model_fields["event_type"].default: cls for cls in _CLASSES})
"""event_type → class, for every type this version knows."""
