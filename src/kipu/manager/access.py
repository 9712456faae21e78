"""Who may do what with a session: one table, asked on every call of the façade (A19, C19)."""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeVar

from kipu.errors import SessionNotFoundError
from kipu.ports.principal import LOCAL_ID, Principal


class Verb(Enum):
    """What a principal can ask of one session."""

    READ = "read"
    APPEND = "append"
    CONFIGURE = "configure"
    FORK = "fork"
    REWIND = "rewind"
    ERASE = "erase"


class Owned(Protocol):
    """What is asked of a head here: whose it is."""

    @property
    def owner(self) -> str:
        """Return the id of the owner."""
        ...

    @property
    def tenant(self) -> str:
        """Return the tenant."""
        ...


OwnedT = TypeVar("OwnedT", bound=Owned)


def owner_of(head: Owned) -> Principal:
    """Return whom a program acts for when it looks after a session: its owner, and where nobody is named the local user."""
    return Principal(head.owner or LOCAL_ID, head.tenant)


def may(principal: Principal, verb: Verb, *, head: Owned) -> bool:
    """Return True when the principal may. Everything that is not allowed is denied; another tenant's never exists."""
    if principal.tenant != head.tenant:
        return False
    if not head.owner:
        # The record that named the owner is damaged. Whoever works on this machine alone loses nothing of it by that.
        return principal.is_admin or principal.is_local
    return principal.id == head.owner or principal.is_admin


def require(principal: Principal, verb: Verb, *, head: OwnedT | None, session_id: str) -> OwnedT:
    """Return what is owned when the principal may.

    Raises:
        SessionNotFoundError: there is none, or it is not for this principal: both look the same from outside (A20).
    """
    if head is None or not may(principal, verb, head=head):
        raise SessionNotFoundError(session_id=session_id)
    return head
