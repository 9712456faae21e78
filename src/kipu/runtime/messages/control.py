"""The control lane: what never waits for a turn, whoever runs it and wherever (A44, C13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kipu.errors import ApprovalNotFoundError, ConflictError
from kipu.events.event import SessionEvent
from kipu.events.turn import ApprovalDecisionEvent, MessageSettledEvent, StopRequestedEvent
from kipu.manager.access import Verb
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.messages.waiting import QueuedMessage, queued_message, waiting_arrivals
from kipu.runtime.turns.ancestry import tell_parents, why_on
from kipu.runtime.turns.turn_run import read_story
from kipu.runtime.workspaces.place import Place

State = Literal["idle", "waiting", "running", "parked", "stopping"]
StopMode = Literal["stop", "interrupt", "rollback", "rollback_forced"]


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """What a session is doing now. `owner` has its lease; `due_at` is when it wants a worker (None: never, "": at once)."""

    session_id: str
    state: State
    open_turn: str | None
    waiting: int
    owner: str | None
    due_at: str | None
    last_seq: int
    bound_to: str | None = None  # the place that has its files, where only a worker there takes its turns
    bound_why: str | None = None
    files_at: str | None = None  # the machine that had them in use last, where they are kept in the store


class ControlLane:
    """Stop, look at and change what waits, decide. Each call is one read or one append that needs no lease."""

    def __init__(
        self, manager: SessionManager, *, wake: Callable[[str], None], approvals: ApprovalDesk | None = None
    ) -> None:
        self._manager = manager
        self._wake = wake
        self.approvals = approvals

    async def stop(self, session_id: str, mode: StopMode = "stop", *, principal: Principal | None = None) -> str | None:
        """Ask the open turn to end, also a parked one, and return its id; None where no turn is open.

        Raises: SessionNotFoundError.
        """
        verb = Verb.REWIND if mode.startswith("rollback") else Verb.STOP
        session = await self._session(session_id, principal, verb)
        turn_id = session.head.open_turn
        if turn_id is None:
            return None
        await session.add_event(StopRequestedEvent(turn_id=turn_id, mode=mode), principal=principal)
        for woken in (session_id, *await self._above(session)):
            self._wake(woken)
        return turn_id

    async def _above(self, session: Session) -> list[str]:
        """Let the turns go on that wait for a helper which is to stop, and return their sessions."""
        if not session.head.parked:
            return []
        why = why_on(await read_story(session), now_us=self._manager.now_us())
        return await tell_parents(self._manager, session, decision=why) if why is not None else []

    async def queue(self, session_id: str, *, principal: Principal | None = None) -> list[QueuedMessage]:
        """Return what waits, in order of arrival, with policy and age."""
        session = await self._session(session_id, principal)
        now_us = self._manager.now_us()
        return [queued_message(arrival, now_us=now_us) for arrival in await waiting_arrivals(session)]

    async def cancel(self, session_id: str, seq: int, *, principal: Principal | None = None) -> SessionEvent:
        """Take a waiting message back; either this or a turn gets it, never both. Who takes part may take back their own.

        Raises: ConflictError (no such message waits: a turn took it, or it was settled), SessionNotFoundError,
        AccessDeniedError.
        """
        while True:
            session = await self._session(session_id, principal, Verb.WITHDRAW)
            if seq not in session.head.waiting:
                raise ConflictError(session_id=session_id, expected=f"message {seq} waiting", actual="not waiting")
            verb = await self._needed_for(session, seq, principal or self._manager.principal)
            settled = MessageSettledEvent(seqs=[seq], reason="cancelled")
            try:
                _, stored = await session.append(
                    [settled], principal=principal, expected_seq=session.history.last_seq, verb=verb
                )
            except ConflictError:  # something was appended in between: look again
                continue
            return stored[-1]

    async def _needed_for(self, session: Session, seq: int, caller: Principal) -> Verb:
        """Return what taking this message back asks for, and ask it."""
        own = any(
            arrival.seq == seq and arrival.author.principal == caller.id for arrival in await waiting_arrivals(session)
        )
        verb = Verb.WITHDRAW if own else Verb.CANCEL
        await session.permit(verb, caller)
        return verb

    async def status(self, session_id: str, *, principal: Principal | None = None) -> SessionStatus:
        """Return what the session is doing."""
        session = await self._session(session_id, principal)
        head = session.head
        stored = await self._manager.store.head(session_id)  # the lease is in no event
        return SessionStatus(
            session_id=session_id,
            state=_state(session),
            open_turn=head.open_turn,
            waiting=len(head.waiting),
            owner=None if stored is None else stored.lease_owner,
            due_at=None if stored is None else stored.due_at,
            last_seq=head.last_seq,
            **_files(head.workspace or {}),
        )

    async def approve(
        self,
        approval_id: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        reason: str | None = None,
        session_id: str | None = None,
        principal: Principal | None = None,
    ) -> SessionEvent:
        """Allow a call that waits for a person, once. Raises: ApprovalNotFoundError, AccessDeniedError, InputError."""
        desk = self._desk(approval_id)
        return await desk.approve(
            approval_id, arguments=arguments, reason=reason, session_id=session_id, principal=principal
        )

    async def deny(
        self,
        approval_id: str,
        *,
        reason: str | None = None,
        session_id: str | None = None,
        principal: Principal | None = None,
    ) -> SessionEvent:
        """Refuse a call that waits for a person. Raises: ApprovalNotFoundError, AccessDeniedError."""
        return await self._desk(approval_id).deny(
            approval_id, reason=reason, session_id=session_id, principal=principal
        )

    async def answer(
        self, approval_id: str, text: str, *, session_id: str | None = None, principal: Principal | None = None
    ) -> ApprovalDecisionEvent:
        """Answer a question of the agent's. Raises: ApprovalNotFoundError, AccessDeniedError, InputError."""
        return await self._desk(approval_id).answer(approval_id, text, session_id=session_id, principal=principal)

    def _desk(self, approval_id: str) -> ApprovalDesk:
        if self.approvals is None:
            raise ApprovalNotFoundError(approval_id=approval_id, reason="nobody asks for approvals here")
        return self.approvals

    async def _session(self, session_id: str, principal: Principal | None, verb: Verb = Verb.READ) -> Session:
        session = await self._manager.open(session_id, principal=principal, verb=verb)
        await session.refresh()
        return session


def _files(record: Mapping[str, Any]) -> dict[str, str | None]:
    place, at = Place.from_json(record.get("place")), Place.from_json(record.get("at"))
    return {
        "bound_to": place.name if place is not None else None,
        "bound_why": record.get("bound"),
        "files_at": at.name if at is not None and place is None else None,
    }


def _state(session: Session) -> State:
    head = session.head
    if head.open_turn is None:
        return "waiting" if head.waiting else "idle"
    if head.stop == head.open_turn:
        return "stopping"
    return "parked" if head.parked else "running"
