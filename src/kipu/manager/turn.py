"""A turn: one run of the agent on one session, between `turn_started` and `turn_finished`, under one lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from kipu.errors import ConflictError, KipuError, LeaseLostError, SessionBusyError
from kipu.events.event import SessionEvent, with_fields
from kipu.events.turn import TurnFinishedEvent, TurnParkedEvent, TurnResumedEvent, TurnStartedEvent
from kipu.ports.principal import Principal

if TYPE_CHECKING:
    from kipu.manager.session import Session

Outcome = Literal["completed", "failed", "cancelled", "interrupted"]


class Turn:
    """Append a run's events under the session's lock, from before its history is read until its last append (C3).

    Leaving the block finishes the turn: `completed`, or `failed` after an exception, or `cancelled`. A parked turn, and one
    that is to be taken over, stays open. A lost lease appends nothing more.
    """

    def __init__(
        self,
        session: Session,
        *,
        turn_id: str,
        consumes: list[int] | None,
        take: int | None,
        policy: str,
        wait_s: float | None,
        principal: Principal | None,
        resumes: bool = False,
    ) -> None:
        self._session = session
        self._lock = session.lock
        self._consumes = consumes
        self._take = take
        self._policy = policy
        self._wait_s = wait_s
        self.principal = principal
        self._entered_lock = False
        self._stays_open = False
        self.was_resumed = resumes
        self.id = turn_id
        self.outcome: Outcome = "completed"
        self.usage: dict[str, Any] | None = None
        self.error: str | None = None
        # What goes into one append with the turn's end, given the log as it stands then: asked again when the log moved.
        self.at_end: Callable[[], Awaitable[Sequence[SessionEvent]]] | None = None

    async def add_event(self, event: SessionEvent) -> SessionEvent:
        """Append one event of this turn and return it as stored."""
        return (await self.add_events([event]))[0]

    async def add_events(self, events: list[SessionEvent], *, expected_seq: int | None = None) -> list[SessionEvent]:
        """Append events of this turn as one batch, such as an answer with all its calls."""
        stamped = [event if event.turn_id else with_fields(event, {"turn_id": self.id}) for event in events]
        return await self._session.add_events(
            stamped, principal=self.principal, token=self._token(), expected_seq=expected_seq
        )

    def _token(self) -> int:
        """Return the turn's fencing token: nothing of a turn is appended without one (C3). Raises: LeaseLostError."""
        token = self._lock.token
        if token is None:  # the lock was given back under it
            raise LeaseLostError(session_id=self._session.session_id, token=0, current=None)
        return token

    async def park(self, waits_for: Sequence[str], *, until: datetime | None, expected_seq: int | None = None) -> None:
        """Wait for people: leaving the block gives the lock back and leaves the turn open (C15).

        Raises: ConflictError (something was appended behind `expected_seq`; nothing is parked).
        """
        parked = TurnParkedEvent(turn_id=self.id, waits_for=list(waits_for), until=until)
        await self.add_events([parked], expected_seq=expected_seq)
        self._stays_open = True

    def leave_open(self) -> None:
        """Let another worker take the turn over when the block is left, whatever it is left with."""
        self._stays_open = True

    async def __aenter__(self) -> Self:
        if self._lock.mine and self._lock.turn_id is not None:
            owner = f"{self._lock.turn_id}, a turn of the same task"
            raise SessionBusyError(session_id=self._session.session_id, owner=owner)
        if not self._lock.mine:
            await self._lock.acquire(wait_s=self._wait_s)
            self._entered_lock = True
        try:
            await (self._resume() if self.was_resumed else self._start())
        except BaseException as error:
            self._judge(error)
            try:
                if not self.was_resumed:  # its beginning may be in the log all the same: then its end must be too
                    with suppress(KipuError):  # what stopped it is what the caller gets
                        await self._end_if_open()
            finally:
                await self._leave()
            raise
        self._lock.turn_id = self.id
        return self

    async def _start(self) -> None:
        """Take the messages out of the mailbox; whoever cancels or takes one at the same time, only one of the two gets it."""
        while True:
            await self._session.refresh()
            consumes = self._taken(self._session.head.waiting)
            started = TurnStartedEvent(
                turn_id=self.id,
                consumes=consumes,
                policy=self._policy,
                worker=self._lock.owner,
                token=self._lock.token,
            )
            try:
                await self._session.add_events(
                    [started],
                    principal=self.principal,
                    expected_seq=self._session.history.last_seq if consumes else None,
                    token=self._lock.token,
                )
            except ConflictError:  # something arrived in between: look again
                continue
            return

    async def _resume(self) -> None:
        """Go on with the turn that is open. Raises: ConflictError (none is)."""
        await self._session.refresh()
        open_turn = self._session.head.open_turn
        if open_turn is None:
            raise ConflictError(session_id=self._session.session_id, expected="an open turn", actual="none")
        self.id = open_turn
        await self.add_event(TurnResumedEvent(turn_id=self.id, worker=self._lock.owner, token=self._lock.token))

    def _taken(self, waiting: Sequence[int]) -> list[int]:
        if self._consumes is None:
            return list(waiting[: self._take])
        gone = sorted(set(self._consumes) - set(waiting))
        if gone:
            raise ConflictError(
                session_id=self._session.session_id, expected=f"message {gone[0]} waiting", actual="taken"
            )
        return self._consumes

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._stays_open and not isinstance(error, LeaseLostError):
                await self._finish(error)
        finally:
            await self._leave()

    async def _finish(self, error: BaseException | None) -> None:
        self._judge(error)
        try:
            await (self._end() if error is None else self.add_event(self._finished()))
        except LeaseLostError:
            if error is None:
                raise
        except asyncio.CancelledError:
            with suppress(KipuError):
                await self._end_if_open()
            raise

    async def _end(self) -> None:
        while True:
            await self._session.refresh()
            last_seq = self._session.history.last_seq
            also = await self.at_end() if self.at_end is not None else ()
            try:
                await self.add_events([self._finished(), *also], expected_seq=last_seq if self.at_end else None)
            except ConflictError:  # something came in, maybe a wish to undo the turn: look again
                continue
            return

    def _judge(self, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.outcome = "cancelled"
        elif error is not None:
            self.outcome, self.error = "failed", f"{type(error).__name__}: {error}"

    def _finished(self) -> TurnFinishedEvent:
        return TurnFinishedEvent(turn_id=self.id, outcome=self.outcome, usage=self.usage, error=self.error)

    async def _end_if_open(self) -> None:
        """Finish the turn if the log says that it is open: a cancelled append was stored, or was not."""
        while True:
            await self._session.refresh()
            if self._session.head.open_turn != self.id:
                return
            last_seq = self._session.history.last_seq
            try:
                await self._session.add_events([self._finished()], token=self._lock.token, expected_seq=last_seq)
            except ConflictError:  # the cancelled one, or an arrival, was stored meanwhile
                continue
            return

    async def _leave(self) -> None:
        if self._lock.turn_id == self.id:
            self._lock.turn_id = None
        if self._entered_lock:
            self._entered_lock = False
            await self._lock.release()
