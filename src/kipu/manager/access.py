"""Who may do what with a session: one table, asked on every call of the façade (A19, C19).

A role says what a principal sees and may ask of one session. It says nothing about tools: those are decided by policy, for
whoever sent the message, on every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from kipu.errors import AccessDeniedError, KipuError, SessionNotFoundError
from kipu.events.event import SessionEvent
from kipu.events.turn import StopRequestedEvent
from kipu.ports.principal import LOCAL_ID, Principal


class Role(StrEnum):
    """What somebody is in one session. Who is none of these is a stranger, and to a stranger the session does not exist."""

    OWNER = "owner"  # whoever made it
    ADMIN = "admin"  # an administrator of its tenant, or whom the owner made one of this session
    PARTICIPANT = "participant"
    VIEWER = "viewer"

    __hash__ = str.__hash__  # the table is asked on every call: an enumeration's own costs three times as much


class Verb(StrEnum):
    """What a principal can ask of one session; the value is how an error says it."""

    READ = "read"
    LEAVE = "leave"
    SEND = "send messages to"
    DECIDE = "decide approvals in"
    STOP = "stop turns of"
    WITHDRAW = "take back messages of their own in"
    CANCEL = "take back messages of others in"
    APPEND = "append to"
    CONFIGURE = "configure"
    FORK = "fork"
    REWIND = "rewind"
    SHARE = "share"
    AUDIT = "see the audit of"
    HOLD = "hold or release"
    ERASE = "erase"

    __hash__ = str.__hash__


_OWNER, _ADMIN = Role.OWNER, Role.ADMIN
_RUNS_IT = frozenset({_OWNER, _ADMIN})
_TAKES_PART = _RUNS_IT | {Role.PARTICIPANT}
_SEES_IT = _TAKES_PART | {Role.VIEWER}

# The one table. A verb that is not in it is denied to everybody, and so is a role that is not named with it.
TABLE: Mapping[Verb, frozenset[Role]] = MappingProxyType(
    {
        Verb.READ: _SEES_IT,
        Verb.LEAVE: _SEES_IT - {_OWNER},
        Verb.SEND: _TAKES_PART,
        Verb.DECIDE: _TAKES_PART,
        Verb.STOP: _TAKES_PART,
        Verb.WITHDRAW: _TAKES_PART,
        Verb.CANCEL: _RUNS_IT,
        Verb.APPEND: _RUNS_IT,
        Verb.CONFIGURE: _RUNS_IT,
        Verb.FORK: _RUNS_IT,
        Verb.REWIND: _RUNS_IT,
        Verb.SHARE: _RUNS_IT,
        Verb.AUDIT: _RUNS_IT,
        Verb.HOLD: _RUNS_IT,
        Verb.ERASE: _RUNS_IT,
    }
)
# What changes nothing: being refused it leaves no trace in the session.
READING = frozenset({Verb.READ, Verb.AUDIT})
# Which verb an event is that somebody adds by themselves; every other type is `APPEND`.
EVENT_VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "user_message": Verb.SEND,
        "stop_requested": Verb.STOP,
        "message_settled": Verb.CANCEL,
        "metadata_changed": Verb.CONFIGURE,
        "status_changed": Verb.CONFIGURE,
        "event_pinned": Verb.CONFIGURE,
        "key_bound": Verb.CONFIGURE,
        "rewind": Verb.REWIND,
        "members_changed": Verb.SHARE,
    }
)
_GIVEN_ROLES = {role.value: role for role in (Role.ADMIN, Role.PARTICIPANT, Role.VIEWER)}
_NOBODY: frozenset[Role] = frozenset()


class Owned(Protocol):
    """What is asked of a head here: whose it is, and with whom it is shared."""

    @property
    def owner(self) -> str:
        """Return the id of the owner."""
        ...

    @property
    def tenant(self) -> str:
        """Return the tenant."""
        ...

    @property
    def members(self) -> Mapping[str, str] | None:
        """Return the roles of the others, by principal id."""
        ...


def owner_of(head: Owned) -> Principal:
    """Return whom a program acts for when it looks after a session: its owner, and where nobody is named the local user."""
    return Principal(head.owner or LOCAL_ID, head.tenant)


def role_of(principal: Principal, head: Owned) -> Role | None:
    """Return what the principal is in the session; None for a stranger, as everybody of another tenant is."""
    if principal.tenant != head.tenant:
        return None
    owner = head.owner
    # Where the record that named the owner is damaged, whoever works on this machine alone loses nothing of it by that.
    if principal.id == owner if owner else principal.is_local:
        return _OWNER
    if "admin" in principal.roles:
        return _ADMIN
    members = head.members
    return _GIVEN_ROLES.get(members.get(principal.id, "")) if members and owner else None


def is_member_at_most(principal: Principal, head: Owned) -> bool:
    """Return True where only the newest members say what the principal may: an owner or administrator stays one."""
    return role_of(principal, head) is not _OWNER and not principal.is_admin


def allows(verb: Verb, role: Role | None) -> bool:
    """Return True where the table has the role with the verb. Everything else is denied."""
    return role in TABLE.get(verb, _NOBODY)


def may(principal: Principal, verb: Verb, *, head: Owned) -> bool:
    """Return True when the principal may. Everything that is not allowed is denied; another tenant's never exists."""
    return role_of(principal, head) in TABLE.get(verb, _NOBODY)


def refusal(
    principal: Principal, verb: Verb, *, head: Owned | None, session_id: str, reason: str | None = None
) -> KipuError:
    """Return the error that whoever may not is given: to who may not see the session, that there is none."""
    role = None if head is None else role_of(principal, head)
    if head is None or not allows(Verb.READ, role):
        return SessionNotFoundError(session_id=session_id)
    return AccessDeniedError(
        principal=principal.id,
        verb=verb.value,
        session_id=session_id,
        role=role.value if role else None,
        needed=_least(verb),
        ask=owner_of(head).id,
        reason=reason or _what_to_ask(principal, verb, role=role, owner=owner_of(head).id, session_id=session_id),
    )


def _least(verb: Verb) -> str | None:
    """Return the least role that may be given and has the verb."""
    given = (Role.VIEWER, Role.PARTICIPANT, Role.ADMIN)
    return next((role.value for role in given if allows(verb, role)), None)


def _what_to_ask(principal: Principal, verb: Verb, *, role: Role | None, owner: str, session_id: str) -> str:
    article = "an" if role in _RUNS_IT else "a"
    least = _least(verb)
    if least is None or role is _OWNER:
        return f"{article} {role} may not; nobody can be given a role that may"
    return (
        f"{article} {role} may not. Ask its owner, {owner}, for the role {least} "
        f"(kipu share {session_id} {principal.id} --role {least})"
    )


def verbs_of(events: Sequence[SessionEvent]) -> set[Verb]:
    """Return what adding these events asks for."""
    return {verb_of(event) for event in events}


def verb_of(event: SessionEvent) -> Verb:
    """Return what adding this event asks for."""
    if isinstance(event, StopRequestedEvent) and event.mode.startswith("rollback"):
        return Verb.REWIND
    return EVENT_VERBS.get(event.event_type, Verb.APPEND)
