"""The next turn of one session: which it is, under which policy, and what remains to be done when it has ended."""

from __future__ import annotations

from datetime import datetime

from kipu.errors import ConflictError, InputError, KipuError, LeaseLostError, StoreError
from kipu.events.boundary import NoteEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.ports.principal import Principal
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.turn_control import TurnControl
from kipu.runtime.turn_run import TurnRun
from kipu.runtime.waiting import waiting_arrivals
from kipu.session.mailbox import NextTurn, next_turn

ROLLBACK_REFUSED_NOTE = "kipu.rollback_refused"


class SessionTurns:
    """Run turns of a session whose lock the current task holds."""

    def __init__(
        self, manager: SessionManager, orchestrator: Orchestrator, *, session: Session, principal: Principal
    ) -> None:
        self._manager = manager
        self._orchestrator = orchestrator
        self._session = session
        self._principal = principal

    async def run_next(self, control: TurnControl) -> int | None:
        """Run the open turn, or the next that the mailbox gives; return when there is more to do (microseconds since 1970).

        None means that nothing is known to come.
        Raises: LeaseLostError, StoreError.
        """
        await self._session.refresh()
        if self._session.head.open_turn is not None:
            wait_us = self._parked_until_us()
            if wait_us is not None and wait_us > self._manager.now_us():
                return wait_us if wait_us < _NEVER_US else None
            await self._run(self._session.resumed_turn(principal=self._principal), control)
        else:
            plan = await self._plan()
            if not plan.consumes:
                return plan.due_us
            turn = self._session.turn(consumes=list(plan.consumes), policy=plan.mode, principal=self._principal)
            try:
                await self._run(turn, control)
            except ConflictError:  # it was cancelled just now
                return self._manager.now_us()
        due_at = self._session.head.due_at
        return None if due_at is None else _micros(due_at)

    def _parked_until_us(self) -> int | None:
        """Return when a parked turn is due; None when the open turn is to go on now."""
        head = self._session.head
        if not head.parked or head.decided or head.stop == head.open_turn:
            return None
        return _micros(head.not_before) if head.not_before else _NEVER_US

    async def _plan(self) -> NextTurn:
        """Return what the mailbox gives next, with what gets no turn settled."""
        while True:
            plan = next_turn(await waiting_arrivals(self._session), now_us=self._manager.now_us())
            if not plan.settle:
                return plan
            settled: list[SessionEvent] = [
                MessageSettledEvent(seqs=list(entry.seqs), reason=entry.reason) for entry in plan.settle
            ]
            try:
                await self._session.add_events(
                    settled, principal=self._principal, expected_seq=self._session.history.last_seq
                )
            except ConflictError:
                await self._session.refresh()

    async def _run(self, turn: Turn, control: TurnControl) -> None:
        run: TurnRun | None = None
        async with turn:
            control.turn_id = turn.id
            try:
                async with self._orchestrator.using(self._session) as agent:
                    run = await agent.run_turn(turn, control)
            except (LeaseLostError, StoreError):
                raise
            except KipuError as error:  # what is wrong with the agent is the outcome of its turn
                turn.outcome, turn.error = "failed", f"{error} [{error.code}]"
        if run is not None and control.mode in ("rollback", "rollback_forced"):
            await self._roll_back(run, forced=control.mode == "rollback_forced")

    async def _roll_back(self, run: TurnRun, *, forced: bool) -> None:
        """Undo the turn, unless it did something outside that no rewind takes back."""
        async with self._orchestrator.using(self._session) as agent:
            tools = [agent.parts.toolbox.find(name) for name in run.story.used_tools]
        outside = sorted({tool.spec.name for tool in tools if tool is not None and tool.spec.is_external})
        if outside and not forced:
            note = NoteEvent(kind=ROLLBACK_REFUSED_NOTE, data={"turn_id": run.story.turn_id, "tools": outside})
            await self._session.add_event(note, principal=self._principal)
            return
        try:
            await self._session.rewind(run.story.started_seq - 1, principal=self._principal)
        except InputError as error:
            note = NoteEvent(kind=ROLLBACK_REFUSED_NOTE, data={"turn_id": run.story.turn_id, "reason": str(error)})
            await self._session.add_event(note, principal=self._principal)


_NEVER_US = 2**62


def _micros(due_at: str) -> int:
    """Return a head's time in microseconds since 1970; "" is at once."""
    return round(datetime.fromisoformat(due_at).timestamp() * 1_000_000) if due_at else 0
