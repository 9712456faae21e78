"""Kipu: the session engine for AI agents.

Sessions are append-only event logs; windows for the model are pure functions of them; turns of one session run one after
another. Start with `open_manager`; in scripts and notebooks with `kipu.blocking`.
"""

from kipu import errors
from kipu.context.policy import WindowPolicy
from kipu.errors import KipuError
from kipu.events.boundary import (
    CompactionEvent,
    ConsolidationEvent,
    DamagedEvent,
    EventPinnedEvent,
    GenericEvent,
    KeyBoundEvent,
    MetadataChangedEvent,
    NoteEvent,
    RewindEvent,
    SessionInitEvent,
    StatusChangedEvent,
)
from kipu.events.conversation import (
    AgentMessageEvent,
    InstructionEvent,
    MemoryRecalledEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    ToolStartedEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    ApprovalDecisionEvent,
    ApprovalRequestEvent,
    DeliveryEvent,
    MessageSettledEvent,
    StopRequestedEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnResumedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)
from kipu.manager.filesystem import FileSystemSessionManager
from kipu.manager.manager import SessionManager
from kipu.manager.protocol import BaseSessionManager
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore, Page, SessionQuery
from kipu.session.key import SessionKey
from kipu.wiring import open_manager, open_store

__version__ = "0.1.0"

__all__ = [
    "AgentMessageEvent",
    "ApprovalDecisionEvent",
    "ApprovalRequestEvent",
    "BaseSessionManager",
    "CompactionEvent",
    "ConsolidationEvent",
    "DamagedEvent",
    "DeliveryEvent",
    "EventPinnedEvent",
    "EventStore",
    "FileSystemSessionManager",
    "GenericEvent",
    "Head",
    "InstructionEvent",
    "KeyBoundEvent",
    "KipuError",
    "MemoryRecalledEvent",
    "MessageSettledEvent",
    "MetadataChangedEvent",
    "ModelCallEvent",
    "NoteEvent",
    "Page",
    "Principal",
    "RewindEvent",
    "Session",
    "SessionEvent",
    "SessionInitEvent",
    "SessionKey",
    "SessionManager",
    "SessionQuery",
    "StatusChangedEvent",
    "StopRequestedEvent",
    "ToolCallEvent",
    "ToolResultEvent",
    "ToolStartedEvent",
    "Turn",
    "TurnFinishedEvent",
    "TurnParkedEvent",
    "TurnResumedEvent",
    "TurnStartedEvent",
    "TurnSteeredEvent",
    "UserMessageEvent",
    "WindowPolicy",
    "errors",
    "open_manager",
    "open_store",
]
