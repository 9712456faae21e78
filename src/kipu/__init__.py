"""Kipu: the session engine for AI agents.

Sessions are append-only event logs; windows for the model are pure functions of them; turns of one session run one after
another. Start with `open_manager`; in scripts and notebooks with `kipu.blocking`.

Names are loaded when they are first asked for, so that a command or a script pays only for what it uses.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from kipu import errors
    from kipu.context.policy import WindowPolicy
    from kipu.errors import KipuError
    from kipu.events.access import AccessDeniedEvent, MembersChangedEvent
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
    from kipu.manager.sharing import Member
    from kipu.manager.turn import Turn
    from kipu.ports.head import Head
    from kipu.ports.principal import Principal
    from kipu.ports.store import EventStore, Page, SessionQuery
    from kipu.session.key import SessionKey
    from kipu.wiring import open_manager, open_store

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedEvent",
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
    "Member",
    "MembersChangedEvent",
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

# Where each name lives; for the type checker the imports above say the same, and a test holds the two together.
_HOMES = {
    "kipu.context.policy": "WindowPolicy",
    "kipu.errors": "KipuError",
    "kipu.events.access": "AccessDeniedEvent MembersChangedEvent",
    "kipu.events.boundary": (
        "CompactionEvent ConsolidationEvent DamagedEvent EventPinnedEvent GenericEvent "
        "KeyBoundEvent MetadataChangedEvent NoteEvent RewindEvent SessionInitEvent "
        "StatusChangedEvent"
    ),
    "kipu.events.conversation": (
        "AgentMessageEvent InstructionEvent MemoryRecalledEvent ModelCallEvent ToolCallEvent "
        "ToolResultEvent ToolStartedEvent UserMessageEvent"
    ),
    "kipu.events.event": "SessionEvent",
    "kipu.events.turn": (
        "ApprovalDecisionEvent ApprovalRequestEvent DeliveryEvent MessageSettledEvent "
        "StopRequestedEvent TurnFinishedEvent TurnParkedEvent TurnResumedEvent TurnStartedEvent "
        "TurnSteeredEvent"
    ),
    "kipu.manager.filesystem": "FileSystemSessionManager",
    "kipu.manager.manager": "SessionManager",
    "kipu.manager.protocol": "BaseSessionManager",
    "kipu.manager.session": "Session",
    "kipu.manager.sharing": "Member",
    "kipu.manager.turn": "Turn",
    "kipu.ports.head": "Head",
    "kipu.ports.principal": "Principal",
    "kipu.ports.store": "EventStore Page SessionQuery",
    "kipu.session.key": "SessionKey",
    "kipu.wiring": "open_manager open_store",
}


def __getattr__(name: str) -> _Any:
    """Load a public name from its home. Raises: AttributeError."""
    if name == "errors":
        return _import_module("kipu.errors")
    for home, names in _HOMES.items():
        if name in names.split():
            value = getattr(_import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
