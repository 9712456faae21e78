"""Who may do what with one session, and with whom it is shared: the part of `Session` that asks before the rest acts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from kipu.errors import InvalidEventError
from kipu.events.access import AccessDeniedEvent, MembersChangedEvent
from kipu.events.event import SessionEvent
from kipu.manager.access import Role, Verb, allows, may, refusal, role_of, verbs_of
from kipu.manager.history import LiveHistory
from kipu.manager.loader import item_of
from kipu.manager.sharing import AUDITED_TYPES, AuditEntry, Member, audit_of, changed_role, members_of
from kipu.ports.head import Head
from kipu.ports.principal import Principal
from kipu.ports.store import Appended, EventStore

if TYPE_CHECKING:
    from kipu.manager.manager import SessionManager


class SessionAccess(ABC):
    """Ask the one table of `access` for every call, with the members as the store has them now (C19)."""

    session_id: str
    _manager: SessionManager
    _store: EventStore
    _history: LiveHistory

    @property
    @abstractmethod
    def head(self) -> Head:
        """Return the session's row as far as this process knows it."""

    @abstractmethod
    async def refresh(self) -> None:
        """Take in what other processes have appended."""

    @abstractmethod
    async def append(
        self, events: Sequence[SessionEvent], *, principal: Principal | None = None, verb: Verb | None = None
    ) -> tuple[Appended, list[SessionEvent]]:
        """Store a batch."""

    # ---- who may ---------------------------------------------------------------------------------------------------

    async def permit(self, verb: Verb, principal: Principal | None = None) -> Principal:
        """Return who asks when they may, as it stands in the store now: a member's role may have been taken back elsewhere.

        Raises: SessionNotFoundError (not for this principal), AccessDeniedError (they may see it, and not do this).
        """
        caller = principal or self._manager.principal
        role = role_of(caller, self._history)
        if (role is Role.OWNER or caller.is_admin) and allows(verb, role):
            return caller
        head = await self._store.head(self.session_id)
        await self._manager.denials.require(caller, verb, head=head, session_id=self.session_id)
        return caller

    async def _permit_events(self, events: Sequence[SessionEvent], principal: Principal | None) -> Principal:
        """Return who asks when they may add each of these, under their own name."""
        caller = principal or self._manager.principal
        for verb in verbs_of(events):
            await self.permit(verb, caller)
        for event in events:
            if isinstance(event, AccessDeniedEvent | MembersChangedEvent):
                raise InvalidEventError(
                    event_type=event.event_type, reason="Kipu writes it itself; use share and revoke"
                )
            if event.principal not in (None, caller.id) and not (caller.is_local or caller.is_admin):
                raise InvalidEventError(
                    event_type=event.event_type, reason=f"{caller.id} cannot speak for {event.principal!r}"
                )
        return caller

    def _allow(self, verb: Verb, principal: Principal | None) -> None:
        """Refuse at once what is known to be forbidden; what is done asks again."""
        caller = principal or self._manager.principal
        if not may(caller, verb, head=self._history):
            self._manager.denials.count(caller, verb, head=self._history, session_id=self.session_id)
            raise refusal(caller, verb, head=self._history, session_id=self.session_id)

    # ---- sharing ---------------------------------------------------------------------------------------------------

    async def share(self, principal_id: str, *, role: str = "viewer", principal: Principal | None = None) -> Member:
        """Let somebody of the session's tenant see it, as a viewer, participant or admin; never what their tools may (A19).

        Only an owner or administrator may. Raises: InputError, SessionNotFoundError, AccessDeniedError.
        """
        caller = await self.permit(Verb.SHARE, principal)
        await self.refresh()
        change = changed_role(self.head, principal_id, role=role, by=caller.id)
        if change is not None:
            await self.append([change], principal=caller, verb=Verb.SHARE)
        return Member(principal_id, role)

    async def revoke(self, principal_id: str, *, principal: Principal | None = None) -> bool:
        """Take a role back; False where they had none. Members may leave, others need an owner or administrator.

        From its return on whoever had the role sees nothing: open sessions and running follows end as "not found".
        """
        caller = principal or self._manager.principal
        verb = Verb.LEAVE if principal_id == caller.id else Verb.SHARE
        await self.permit(verb, caller)
        await self.refresh()
        if principal_id not in (self.head.members or {}):
            return False
        await self.append([MembersChangedEvent(revoked=[principal_id], by=caller.id)], principal=caller, verb=verb)
        return True

    async def members(self, *, principal: Principal | None = None) -> list[Member]:
        """Return who may see the session: its owner, then those it is shared with."""
        await self.permit(Verb.READ, principal)
        await self.refresh()
        return members_of(self.head)

    async def audit(self, *, principal: Principal | None = None) -> AsyncIterator[AuditEntry]:
        """Yield who was let in, by whom, and what was refused, oldest first. Reads the whole log of the session."""
        await self.permit(Verb.AUDIT, principal)
        await self._manager.denials.tell(self.session_id, asked=True)
        after = self.head.base_seq
        while page := await self._store.read(self.session_id, after=after):
            for stored in page:
                if stored.record.event_type in AUDITED_TYPES:
                    for entry in audit_of(item_of(stored).event):
                        yield entry
            after = page[-1].seq
