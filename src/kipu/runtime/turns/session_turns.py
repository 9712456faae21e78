"""The next turn of one session: which it is, under which policy, and what remains to be done when it has ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from kipu.errors import ConflictError, InputError, KipuError, LeaseLostError, StoreError, StoreUnavailableError
from kipu.events.boundary import NoteEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import MessageSettledEvent
from kipu.manager.manager import SessionManager
from kipu.manager.rewinding import undoing
from kipu.manager.session import Session
from kipu.manager.turn import Turn
from kipu.ports.principal import Principal
from kipu.runtime.messages.outbound import ROLLBACK_REFUSED_NOTE
from kipu.runtime.messages.waiting import waiting_arrivals
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.turns.ancestry import end_task, helper_session, tell_parents, why_on
from kipu.runtime.turns.quarantine import Quarantine
from kipu.runtime.turns.tool_step import closing_events
from kipu.runtime.turns.turn_control import HANDOVER, TurnControl
from kipu.runtime.turns.turn_run import read_story
from kipu.session.mailbox import NextTurn, next_turn
from kipu.session.turn_story import TurnStory

logger = logging.getLogger(__name__)


class SessionTurns:
    """Run turns of a session whose lock the current task holds."""

    def __init__(
        self,
        manager: SessionManager,
        orchestrator: Orchestrator,
        *,
        session: Session,
        principal: Principal,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._manager = manager
        self._orchestrator = orchestrator
        self._session = session
        self._principal = principal
        self._quarantine = quarantine or Quarantine()

    async def run_next(self, control: TurnControl) -> int | None:
        """Run the open turn, or the next that the mailbox gives; return when there is more to do (microseconds since 1970).

        None means that nothing is known to come.
        Raises: LeaseLostError, StoreError.
        """
        await self._session.refresh()
        if control.mode == HANDOVER:  # this process ends: nothing is begun any more
            return None
        if self._session.head.open_turn is not None:
            wait_us = self._parked_until_us()
            if wait_us is not None and wait_us > self._manager.now_us():
                return wait_us if wait_us < _NEVER_US else None
            await self._resume(control)
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

    async def _resume(self, control: TurnControl) -> None:
        """Go on with the open turn: with few of its likes at once, if it was taken up before and got nowhere."""
        turn = self._session.resumed_turn(principal=self._principal)
        story = await read_story(self._session)
        why = why_on(story, now_us=self._manager.now_us()) if self._session.head.parked else None
        if why is not None:
            await tell_parents(self._manager, self._session, decision=why)
        give_back = await self._quarantine.enter(story.resumed_in_vain)
        control.on_progress = give_back
        try:
            if control.mode != HANDOVER:
                await self._run(turn, control)
        finally:
            give_back()

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
        async with turn:
            control.turn_id, turn.at_end = turn.id, self._undoing
            try:
                async with self._orchestrator.using(self._session) as agent:
                    await agent.run_turn(turn, control)
            except LeaseLostError:
                raise
            except StoreUnavailableError:  # for a moment, maybe: what was begun is classified when it is taken up again
                turn.leave_open()
                raise
            except Exception as error:  # what is wrong with the agent is the outcome of its turn
                if not isinstance(error, KipuError):
                    logger.exception("session %s: turn %s failed", self._session.session_id, turn.id)
                turn.outcome, turn.error = "failed", _said(error)
                story = await read_story(self._session)
                await self._end_helpers(story)
                await turn.add_events(closing_events(story.open_calls))

    async def _end_helpers(self, story: TurnStory) -> None:
        """Tell the helpers of calls that end without their agent to stop: whoever has their sessions does."""
        for call in story.open_calls:
            with suppress(KipuError):  # the turn is to end, and its calls with it
                helper = await helper_session(self._manager, call, parent=self._session.head)
                if helper is not None:
                    await end_task(helper, call.id, principal=self._principal)

    async def _undoing(self) -> Sequence[SessionEvent]:
        """Return what undoes the turn that is about to end, if somebody asked for that.

        Something that it did outside is undone by no rewind: the wish is refused then, visibly, unless it was forced.
        """
        if self._session.head.stop is None:
            return ()
        story = await read_story(self._session)
        if story.stop_mode not in ("rollback", "rollback_forced"):
            return ()
        outside = await self._outside(story) if story.stop_mode == "rollback" else []
        if outside:
            return [_refused(story, tools=outside)]
        try:
            return await undoing(self._session, started_seq=story.started_seq)
        except InputError as error:
            return [_refused(story, reason=str(error))]

    async def _outside(self, story: TurnStory) -> list[str]:
        """Return the tools of the turn that may have had an effect outside; of one that is gone nobody knows."""
        if not story.used_tools:
            return []
        try:
            async with self._orchestrator.using(self._session) as agent:
                found = {name: agent.parts.toolbox.find(name) for name in story.used_tools}
        except (LeaseLostError, StoreError):
            raise
        except Exception:  # noqa: BLE001 - no agent, and so none of its tools
            found = dict.fromkeys(story.used_tools)
        return sorted(name for name, tool in found.items() if tool is None or tool.spec.is_external)


def _said(error: Exception) -> str:
    return f"{error} [{error.code}]" if isinstance(error, KipuError) else f"{type(error).__name__}: {error}"


def _refused(story: TurnStory, **why: Any) -> NoteEvent:
    data = {"turn_id": story.turn_id, "seqs": story.consumes, **why}
    return NoteEvent(kind=ROLLBACK_REFUSED_NOTE, data=data)


_NEVER_US = 2**62


def _micros(due_at: str) -> int:
    """Return a head's time in microseconds since 1970; "" is at once."""
    return round(datetime.fromisoformat(due_at).timestamp() * 1_000_000) if due_at else 0
