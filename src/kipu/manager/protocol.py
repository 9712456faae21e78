"""The manager's interface, as the design names it: what a program may rely on, whatever keeps the sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kipu.events.event import SessionEvent

if TYPE_CHECKING:
    from kipu.manager.session import Session


class BaseSessionManager(ABC):
    """Create, find, write and end sessions.

    Contract:
    - `create_session` returns a unique id; an id that exists is loaded and not overwritten (B20-B22).
    - `get_session` looks in memory, then in the store; None only where there is no such session (B23).
    - `save_event` is durable when it returns, and a missing session is an error (B24, B25).
    - `list_sessions` filters by times, status, owner and metadata (B26).
    - `delete_session` removes everything; False where there was nothing (B27).
    """

    @abstractmethod
    async def create_session(
        self, session_id: str | None = None, initial_context: Mapping[str, Any] | None = None
    ) -> str:
        """Create a session and return its id."""

    @abstractmethod
    async def get_session(self, session_id: str) -> Session | None:
        """Return the session, or None if there is none."""

    @abstractmethod
    async def save_event(self, session_id: str, event: SessionEvent) -> SessionEvent:
        """Store an event durably and return it as stored."""

    @abstractmethod
    async def list_sessions(self, filter_criteria: Mapping[str, Any] | None = None) -> list[str]:
        """Return the ids of the sessions that match."""

    @abstractmethod
    async def delete_session(self, session_id: str) -> bool:
        """Remove a session and all that is stored of it; False if there is none."""
