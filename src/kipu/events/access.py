"""Events about who may see a session: sharing and taking back, and what was refused (C19)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kipu.events.event import SessionEvent, UtcDatetime

MemberRole = Literal["viewer", "participant", "admin"]
Count = Annotated[int, Field(ge=1, strict=True)]


class MembersChangedEvent(SessionEvent):
    """Others may see the session from now on, each in a role, or no longer. Ids are those of the session's tenant."""

    event_type: Literal["members_changed"] = "members_changed"
    roles: dict[str, MemberRole] = Field(default_factory=dict)
    revoked: list[str] = Field(default_factory=list)
    by: str


class AccessDeniedEvent(SessionEvent):
    """Somebody was refused `count` times what `verb` says; `tenant` is there where it is not the session's own.

    Without `who`, it stands for people whom the process did not tell apart any more.
    """

    event_type: Literal["access_denied"] = "access_denied"
    who: str
    tenant: str | None = None
    verb: str
    role: str | None = None
    count: Count = 1
    first_at: UtcDatetime | None = None
    last_at: UtcDatetime | None = None
