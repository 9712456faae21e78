"""Sharing: who else may see a session, and in which role. A role is visibility, never a tool (A19, C19)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kipu.errors import InputError
from kipu.events.access import AccessDeniedEvent, MembersChangedEvent
from kipu.events.boundary import MetadataChangedEvent, SessionInitEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import Role, owner_of
from kipu.ports.head import Head

MEMBERS = 500  # of one session; heads are small
ID_CHARACTERS = 200
GIVEN = (Role.VIEWER.value, Role.PARTICIPANT.value, Role.ADMIN.value)
_GRANT = "grant."


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who may see a session, and in which role."""

    principal_id: str
    role: str

    def to_json(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing of a session's audit: `what` is created, shared, revoked, granted, ungranted or denied, about `who`.

    A denial stands for `count` of them; `detail` is the role, the verb, or the grant.
    """

    seq: int
    at: datetime | None
    what: str
    who: str
    detail: str
    by: str | None = None
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**asdict(self), "at": self.at.isoformat() if self.at else None}


def members_of(head: Head) -> list[Member]:
    """Return who may see the session: its owner, then the others by id."""
    others = sorted((head.members or {}).items())
    return [Member(owner_of(head).id, Role.OWNER.value), *(Member(name, role) for name, role in others)]


def changed_role(head: Head, principal_id: str, *, role: str, by: str) -> MembersChangedEvent | None:
    """Return the event that gives somebody a role, in the place of the one they had; None where they have it.

    Raises: InputError (no such role, no usable id, its owner, or too many members).
    """
    members = head.members or {}
    if role not in GIVEN:
        raise InputError(reason=f"{role!r} is no role that is given; there are {', '.join(GIVEN)}")
    _check_id(principal_id)
    if principal_id == owner_of(head).id:
        raise InputError(reason=f"{principal_id} owns session {head.session_id}, and may everything with it")
    if principal_id not in members and len(members) >= MEMBERS:
        raise InputError(reason=f"session {head.session_id} has {MEMBERS} members; revoke one before adding another")
    if members.get(principal_id) == role:
        return None
    return MembersChangedEvent.model_validate({"roles": {principal_id: role}, "by": by})


def _check_id(principal_id: str) -> None:
    usable = 0 < len(principal_id) <= ID_CHARACTERS and principal_id.isprintable()
    if not usable or principal_id != principal_id.strip():
        raise InputError(reason=f"{principal_id!r} is no principal's id: 1 to {ID_CHARACTERS} printable characters")


def audit_of(event: SessionEvent) -> list[AuditEntry]:
    """Return what an event says to whoever looks after a session: who was let in, and who was not."""
    seq, at, by = event.seq, event.timestamp, event.principal
    if isinstance(event, SessionInitEvent):
        return [AuditEntry(seq, at, "created", event.owner, Role.OWNER.value, by)]
    if isinstance(event, MembersChangedEvent):
        shared = [AuditEntry(seq, at, "shared", who, role, event.by) for who, role in event.roles.items()]
        return shared + [AuditEntry(seq, at, "revoked", who, "", event.by) for who in event.revoked]
    if isinstance(event, AccessDeniedEvent):
        who = event.who if event.tenant is None else f"{event.tenant}/{event.who}"
        return [AuditEntry(seq, at, "denied", who or "(others)", event.verb, None, event.count)]
    if isinstance(event, MetadataChangedEvent):
        granted = [
            AuditEntry(seq, at, "granted", _grantee(value), _granted(value), by)
            for name, value in event.set.items()
            if name.startswith(_GRANT)
        ]
        return granted + [
            AuditEntry(seq, at, "ungranted", name.removeprefix(_GRANT), "", by)
            for name in event.unset
            if name.startswith(_GRANT)
        ]
    return []


def _grantee(grant: Any) -> str:
    return str(grant.get("principal", "")) if isinstance(grant, dict) else ""


def _granted(grant: Any) -> str:
    return f"{grant.get('tool', '')} {grant.get('subject', '')}".strip() if isinstance(grant, dict) else ""


AUDITED_TYPES = frozenset({"session_init", "members_changed", "access_denied", "metadata_changed"})
