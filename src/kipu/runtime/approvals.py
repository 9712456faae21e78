"""The desk where people decide about calls: what waits, who may decide, and the first decision that counts (C15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn, TypeAlias

from kipu.errors import ApprovalNotFoundError, ConflictError, InputError, SessionNotFoundError
from kipu.events.turn import ApprovalDecisionEvent, ApprovalRequestEvent
from kipu.manager.access import Verb, owner_of, refusal
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from kipu.runtime.policy.grant import GrantMatch, GrantScope
from kipu.runtime.policy.grants import Grants
from kipu.runtime.turns.ancestry import bond_of, helper_session, tell_parents
from kipu.runtime.turns.approval_gate import ANSWERED, APPROVED, DENIED, QUESTION
from kipu.runtime.turns.turn_run import read_story
from kipu.session.turn_story import OpenCall, TurnStory

Scope: TypeAlias = Literal["once", "session", "project", "user"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One question that waits for a person. `shown` is what they are to see: tool, arguments, reason, summary, diff."""

    approval_id: str
    session_id: str
    title: str
    turn_id: str
    tool_call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    shown: Mapping[str, Any]
    asked_at: datetime | None
    expires_at: datetime | None
    is_expired: bool
    helper_of: str | None = None  # the session whose helper asks

    @property
    def question(self) -> str | None:
        """Return what the agent wants to know, None where it asks whether a call may run."""
        question = self.shown.get(QUESTION)
        return question if isinstance(question, str) else None

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "approval_id": self.approval_id,
            "session_id": self.session_id,
            "title": self.title,
            "turn_id": self.turn_id,
            "tool_call_id": self.tool_call_id,
            "tool": self.tool_name,
            "arguments": dict(self.arguments),
            "shown": dict(self.shown),
            "asked_at": self.asked_at.isoformat() if self.asked_at else None,
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "is_expired": self.is_expired,
            "helper_of": self.helper_of,
            "question": self.question,
        }


class ApprovalDesk:
    """List and decide, from any process; nothing of it lives in memory only."""

    def __init__(
        self,
        manager: SessionManager,
        *,
        grants: Grants | None = None,
        wake: Callable[[str], None] | None = None,
        may_approve_own: bool = False,
    ) -> None:
        self._manager = manager
        self._grants = grants
        self._wake = wake
        self._may_approve_own = may_approve_own

    async def pending(
        self, *, session_id: str | None = None, principal: Principal | None = None
    ) -> list[PendingApproval]:
        """Return what waits, in one session and its helpers' or in all of the principal's, the oldest first."""
        found: list[PendingApproval] = []
        for session in await self._sessions(session_id, principal):
            story = await read_story(session)
            found += [self._pending(session, story, call) for call in story.open_calls if call.awaits_decision]
        # Not by their ids, whose order within a millisecond is chance: calls made together are asked for in their order.
        return sorted(found, key=lambda entry: entry.asked_at or _LONG_AGO)

    async def approve(
        self,
        approval_id: str,
        *,
        scope: Scope = "once",
        match: GrantMatch = "exact",
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
        session_id: str | None = None,
        principal: Principal | None = None,
    ) -> ApprovalDecisionEvent:
        """Allow the call, with other arguments if a person changed them, and with a wider `scope` the likes of it from now on.

        Raises: ApprovalNotFoundError, AccessDeniedError, InputError.
        """
        if scope != "once" and arguments is not None:
            raise InputError(reason="what is allowed for good is what was asked for; leave the arguments as they are")
        return await self._decide(
            approval_id,
            APPROVED,
            scope=scope,
            match=match,
            arguments=arguments,
            reason=reason,
            session_id=session_id,
            principal=principal,
        )

    async def deny(
        self,
        approval_id: str,
        *,
        reason: str | None = None,
        session_id: str | None = None,
        principal: Principal | None = None,
    ) -> ApprovalDecisionEvent:
        """Refuse the call; the model is told, with the reason. Raises: ApprovalNotFoundError, AccessDeniedError."""
        return await self._decide(
            approval_id,
            DENIED,
            scope="once",
            match="exact",
            arguments=None,
            reason=reason,
            session_id=session_id,
            principal=principal,
        )

    async def answer(
        self, approval_id: str, text: str, *, session_id: str | None = None, principal: Principal | None = None
    ) -> ApprovalDecisionEvent:
        """Answer a question that the agent asked; the words are what its call gives it.

        Raises: ApprovalNotFoundError, AccessDeniedError, InputError (no words; it asks for a permission and not for words).
        """
        if not text.strip():
            raise InputError(reason="the answer has no words")
        return await self._decide(
            approval_id,
            ANSWERED,
            scope="once",
            match="exact",
            arguments=None,
            reason=None,
            session_id=session_id,
            principal=principal,
            answer=text,
        )

    async def _decide(
        self,
        approval_id: str,
        decision: str,
        *,
        scope: Scope,
        match: GrantMatch,
        arguments: Mapping[str, Any] | None,
        reason: str | None,
        session_id: str | None,
        principal: Principal | None,
        answer: str | None = None,
    ) -> ApprovalDecisionEvent:
        caller = principal or self._manager.principal
        while True:
            session, approval = await self._find(approval_id, session_id=session_id, principal=caller)
            asked = await self._asked(session, session_id, caller)
            await self._check(asked, approval, caller, decision=decision)
            await self._check_reach(asked, approval, caller, scope=scope, edits=arguments is not None)
            # Who may decide in a session may in its helpers', which are the owner's alone: then their name is on it.
            keeper = caller if asked is session else owner_of(session.head)
            event = ApprovalDecisionEvent(
                approval_id=approval_id,
                decision=decision,
                by=caller.id,
                scope=scope if decision == APPROVED else None,
                arguments=None if arguments is None else dict(arguments),
                answer=answer,
                reason=reason,
                turn_id=approval.turn_id,
                principal=caller.id,
            )
            try:
                expected = session.history.last_seq
                await session.append([event], principal=keeper, expected_seq=expected, verb=Verb.DECIDE)
            except ConflictError:  # somebody may have decided meanwhile: the first one counts
                continue
            break
        for due in (session.session_id, *await tell_parents(self._manager, session, decision=event)):
            if self._wake is not None:
                self._wake(due)
        if scope != "once" and decision == APPROVED:
            await self._grant(session, approval, scope=scope, match=match, by=caller, keeper=keeper)
        return event

    async def _grant(
        self,
        session: Session,
        approval: PendingApproval,
        *,
        scope: GrantScope,
        match: GrantMatch,
        by: Principal,
        keeper: Principal,
    ) -> None:
        """Allow the likes of the call to whoever asked for it; a call that is approved stays so if this fails."""
        if self._grants is None:
            return
        asked_by = Principal(str(approval.shown.get("requested_by") or by.id), by.tenant)
        await self._grants.add(
            session,
            approval.tool_name,
            subject=str(approval.shown.get("subject") or ""),
            scope=scope,
            match=match,
            principal=asked_by,
            by=by.id,
            approval_id=approval.approval_id,
            keeper=keeper,
        )

    async def _asked(self, session: Session, session_id: str | None, caller: Principal) -> Session:
        """Return the session whose members may decide: the one that was named, though its helper asks."""
        if session_id in (None, session.session_id):
            return session
        return await self._manager.open(session_id or "", principal=caller, verb=Verb.DECIDE)

    async def _check(self, session: Session, approval: PendingApproval, caller: Principal, *, decision: str) -> None:
        await session.permit(Verb.DECIDE, caller)
        if approval.is_expired:
            raise ApprovalNotFoundError(approval_id=approval.approval_id, reason="it has expired")
        if decision == ANSWERED and approval.question is None:
            raise InputError(reason="it asks whether a call may run: approve or deny it")
        own = decision == APPROVED and approval.question is None and approval.shown.get("requested_by") == caller.id
        if own and not (self._may_approve_own or caller.is_local):
            reason = "whose message asks for a call does not approve it; ask somebody else who takes part"
            await self._refuse(session, caller, Verb.DECIDE, reason)

    async def _check_reach(
        self, session: Session, approval: PendingApproval, caller: Principal, *, scope: Scope, edits: bool
    ) -> None:
        """Ask for more than one decision's right where more is decided: a session shared is not a tool shared (A19)."""
        if edits or scope != "once":
            await session.permit(Verb.CONFIGURE, caller)
        own = approval.shown.get("requested_by") == caller.id
        if scope in ("project", "user") and not (own or caller.is_local or caller.is_admin):
            reason = f"what somebody else may do beyond it is for an administrator to say; use the scope {'session'!r}"
            await self._refuse(session, caller, Verb.DECIDE, reason)

    async def _refuse(self, session: Session, caller: Principal, verb: Verb, reason: str) -> NoReturn:
        session_id = session.session_id
        await self._manager.denials.note(caller, verb, head=session.head, session_id=session_id)
        raise refusal(caller, verb, head=session.head, session_id=session_id, reason=reason)

    async def _find(
        self, approval_id: str, *, session_id: str | None, principal: Principal
    ) -> tuple[Session, PendingApproval]:
        for session in await self._sessions(session_id, principal, Verb.DECIDE):
            story = await read_story(session)
            for call in story.open_calls:
                if call.request is not None and call.request.approval_id == approval_id:
                    if call.decision is not None:
                        reason = f"{call.decision.by} has decided it already ({call.decision.decision})"
                        raise ApprovalNotFoundError(approval_id=approval_id, reason=reason)
                    return session, self._pending(session, story, call)
        raise ApprovalNotFoundError(approval_id=approval_id, reason="no turn that you may see waits for it")

    async def _sessions(
        self, session_id: str | None, principal: Principal | None, verb: Verb = Verb.READ
    ) -> list[Session]:
        """Return the sessions with an open turn, refreshed: one with those of its helpers, or all that may wait for a person."""
        if session_id is not None:
            return await self._with_helpers(await self._manager.open(session_id, principal=principal, verb=verb))
        found: list[Session] = []
        async for head in self._manager.heads(SessionQuery(open_turn=True, limit=500), principal=principal):
            with suppress(SessionNotFoundError):  # erased meanwhile
                session = await self._manager.open(head.session_id, principal=principal)
                await session.refresh()
                found.append(session)
        return found

    async def _with_helpers(self, session: Session) -> list[Session]:
        await session.refresh()
        if session.head.open_turn is None:
            return []
        found = [session]
        for call in (await read_story(session)).open_calls:
            helper = await helper_session(self._manager, call, parent=session.head)
            if helper is not None:
                found += await self._with_helpers(helper)
        return found

    def _pending(self, session: Session, story: TurnStory, call: OpenCall) -> PendingApproval:
        request = call.request or ApprovalRequestEvent(approval_id="", tool_call_id=call.id, arguments_hash="")
        now = datetime.fromtimestamp(self._manager.now_us() / 1_000_000, UTC)
        bond = bond_of(session.head.metadata)
        return PendingApproval(
            approval_id=request.approval_id,
            session_id=session.session_id,
            title=session.title,
            turn_id=story.turn_id,
            tool_call_id=call.id,
            tool_name=call.call.tool_name,
            arguments=call.call.tool_input,
            shown=request.shown,
            asked_at=request.timestamp,
            expires_at=request.expires_at,
            is_expired=request.expires_at is not None and request.expires_at <= now,
            helper_of=None if bond is None else bond.session_id,
        )
