"""The `always` of approvals: kept in the log, seen from every process, listable and revocable (C15)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kipu.errors import InputError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.event import utc_text
from kipu.ports.clock import Clock
from kipu.ports.principal import Principal
from kipu.runtime.policy.grant import MATCHES, SCOPES, Grant, GrantMatch, GrantScope
from kipu.runtime.policy.subject_pattern import Splitter, split_commands
from kipu.session.key import SessionKey

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager
    from kipu.manager.session import Session

PREFIX = "grant."  # of the metadata names that hold grants
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Grants:
    """Keep what people allowed for more than once, and find what covers a call.

    Each grant is a setting of its own (`grant.<id>`), put and removed by a `metadata_changed` event, so that two processes
    that add at once lose none: in the session it is for, or, for a project or a user, in a session that Kipu keeps for the
    principal (key `kipu:grants`). Rewinding leaves grants alone; a fork does not inherit those of its parent.

    A grant answers an `ask`. It is never asked about a `deny`: the gate decides by `ToolPolicy` first.
    """

    def __init__(
        self, manager: SessionManager, *, clock: Clock, splitters: Mapping[str, Splitter] | None = None
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._splitters = dict(splitters or {})

    async def matching(
        self,
        session: Session,
        tool_name: str,
        *,
        subject: str,
        principal: Principal,
        scopes: Collection[GrantScope] = SCOPES,
    ) -> Grant | None:
        """Return a grant of one of `scopes` that covers this call of this principal, the narrowest first; None asks a person.

        What any process granted or revoked before the call is seen.
        """
        splitter = self._splitters.get(tool_name)
        commands = None if splitter is None else split_commands(splitter, subject)
        for grant in await self.list(principal, session=session):
            if grant.scope in scopes and grant.covers(
                tool_name,
                subject,
                principal=principal,
                session_id=session.session_id,
                project=project_of(session),
                commands=commands,
            ):
                return grant
        return None

    async def add(
        self,
        session: Session,
        tool_name: str,
        *,
        subject: str,
        scope: GrantScope,
        match: GrantMatch = "exact",
        principal: Principal,
        by: str,
        approval_id: str,
        keeper: Principal | None = None,
    ) -> Grant:
        """Keep a grant to `principal`, decided by `by`, and return it; durable when this returns. The same one is kept once.

        `keeper` is who may change the session, where `principal` is no more than an author in it.

        Raises: InputError (an unknown scope or match, nothing to bind it to, or `project` where the session has none).
        """
        grant = Grant(
            grant_id=self._manager.mint("grant"),
            tool=tool_name,
            subject=subject,
            match=match,
            scope=scope,
            target=_target(session, scope),
            principal=principal.id,
            tenant=principal.tenant,
            created_at=utc_text(_EPOCH + timedelta(microseconds=self._clock.now_us())),
            by=by,
            approval_id=approval_id,
        )
        _check(grant)
        for known in await self.list(principal, session=session):
            if _is_same(known, grant):
                return known
        kept = MetadataChangedEvent(set={PREFIX + grant.grant_id: grant.to_json()})
        if scope == "session":
            await session.add_event(kept, principal=keeper or principal)
        else:
            await (await self._kept_for(principal)).add_event(kept, principal=principal)
        return grant

    async def list(self, principal: Principal, *, session: Session | None = None) -> list[Grant]:
        """Return the principal's grants, those of `session` first, then those of projects and the user, oldest first."""
        found: list[Grant] = []
        if session is not None:
            await session.refresh()
            found += [grant for grant in _grants_in(session) if grant.scope == "session"]
        session_id = await self._manager.resolve(_key(principal), principal=principal)
        if session_id is not None:
            kept = await self._manager.open(session_id, principal=principal)
            await kept.refresh()
            found += [grant for grant in _grants_in(kept) if grant.scope != "session"]
        mine = [grant for grant in found if (grant.principal, grant.tenant) == (principal.id, principal.tenant)]
        return sorted(mine, key=lambda grant: (SCOPES.index(grant.scope), grant.grant_id))

    async def revoke(self, grant_id: str, *, principal: Principal, session: Session | None = None) -> bool:
        """Take a grant back, in every process, from the next call on; False if the principal has none of this id."""
        known = await self.list(principal, session=session)
        for grant in known:
            if grant.grant_id != grant_id:
                continue
            place = session if grant.scope == "session" and session is not None else await self._kept_for(principal)
            # Two processes may have kept the same one at once: what is taken back is what it allows.
            same = [PREFIX + other.grant_id for other in known if _is_same(other, grant)]
            await place.add_event(MetadataChangedEvent(unset=same), principal=principal)
            return True
        return False

    async def _kept_for(self, principal: Principal) -> Session:
        return await self._manager.get_or_create(_key(principal), principal=principal)


def project_of(session: Session) -> str | None:
    """Return what project a session works in: its repository, else the directory it was given; None for a private one."""
    workspace = session.head.workspace or {}
    place = workspace.get("repository") or workspace.get("path")
    if workspace.get("kind", "directory") == "private" or not isinstance(place, str) or not place:
        return None
    return place.rstrip("/") or "/"


def _key(principal: Principal) -> SessionKey:
    return SessionKey("kipu", "grants", tenant=principal.tenant or None, member=principal.id)


def _target(session: Session, scope: GrantScope) -> str:
    if scope == "session":
        return session.session_id
    if scope == "user":
        return ""
    project = project_of(session)
    if project is None:
        raise InputError(reason=f"session {session.session_id} works in no project; grant it for the session")
    return project


def _check(grant: Grant) -> None:
    if grant.scope not in SCOPES or grant.match not in MATCHES:
        raise InputError(reason=f"a grant is for one of {', '.join(SCOPES)}, and matches one of {', '.join(MATCHES)}")
    if not grant.tool or (not grant.subject.strip() and grant.match != "exact"):
        raise InputError(reason="a grant names a tool and a subject")
    if not grant.by or not grant.approval_id:
        raise InputError(reason="a grant says who decided it, in which approval")


def _is_same(one: Grant, other: Grant) -> bool:
    names = ("tool", "subject", "match", "scope", "target", "principal", "tenant")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _grants_in(session: Session) -> list[Grant]:
    settings = session.head.metadata
    found = (Grant.from_json(value) for name, value in settings.items() if name.startswith(PREFIX))
    return [grant for grant in found if grant is not None]
