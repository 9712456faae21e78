"""One run of `kipu run`: serve the session until nothing is left to do there, and say how it ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kipu.cli.exit_code import ExitCode
from kipu.cli.helper_sessions import parked_helpers
from kipu.cli.posting import post
from kipu.errors import ConflictError, KipuError, TurnLimitError
from kipu.events.conversation import AgentMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    MessageSettledEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnResumedEvent,
    TurnStartedEvent,
)
from kipu.runtime.observer import News

if TYPE_CHECKING:
    from kipu.cli.run.consent import Consent
    from kipu.cli.run.report import Report
    from kipu.cli.run.task import OpenedTask
    from kipu.runtime.approvals import PendingApproval
    from kipu.runtime.runtime import Runtime

STOP_GRACE_S = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class RunOutcome:
    """How it ended: the last turn, its answer, and what still waits for a person."""

    code: ExitCode
    session_id: str
    turn_id: str | None = None
    outcome: str | None = None
    error: str | None = None
    answer: AgentMessageEvent | None = None
    usage: dict[str, Any] | None = None
    approvals: list[PendingApproval] = field(default_factory=list)


class TaskRun:
    """Put the task into the session and follow what happens there, in this process or another.

    Messages that others send meanwhile are answered too; the outcome is that of the last turn. SIGINT ends the turn in order,
    SIGTERM leaves it open for whoever goes on with it.
    """

    def __init__(self, runtime: Runtime, opened: OpenedTask, *, report: Report, consent: Consent) -> None:
        self._runtime = runtime
        self._session = opened.session
        self._opened = opened
        self._report = report
        self._consent = consent
        self._queue: asyncio.Queue[SessionEvent | News | signal.Signals | KipuError | str] = asyncio.Queue()
        self._message_seq: int | None = None
        self._turn_id: str | None = opened.session.head.open_turn
        self._answer: AgentMessageEvent | None = None
        self._finished: TurnFinishedEvent | None = None
        self._settled: str | None = None
        self._is_interrupted = False
        self._drain: asyncio.Task[None] | None = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as wishes while the block runs, in the order they come."""
        loop = asyncio.get_running_loop()
        taken: list[signal.Signals] = []
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread
                loop.add_signal_handler(number, self._queue.put_nowait, number)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    async def until_done(self) -> RunOutcome:
        """Return when nothing is left to do, or somebody wants it to end."""
        self._report.begin(self._session, is_new=self._opened.is_new)
        with self._runtime.feed.listen(self._session.session_id) as listener:
            watchers = [asyncio.ensure_future(self._hand_on(listener.__aiter__()))]
            watchers.append(asyncio.ensure_future(self._hand_on(self._session.follow(after=self._opened.after))))
            helpers = parked_helpers(self._runtime.manager, session_id=self._session.session_id)
            watchers.append(asyncio.ensure_future(self._hand_on(helpers)))
            try:
                return await self._begin() or await self._watch()
            finally:
                for watcher in [*watchers, *([self._drain] if self._drain else [])]:
                    watcher.cancel()
                await asyncio.gather(*watchers, return_exceptions=True)

    async def _begin(self) -> RunOutcome | None:
        if self._awaits_person:
            outcome = await self._parked()
            if outcome is not None:  # a task that would wait behind it is not stored either
                return outcome
        if self._opened.text:
            receipt = await post(self._runtime.manager, self._session, text=self._opened.text)
            self._message_seq = receipt.seq
        self._runtime.worker.wake(self._session.session_id)
        return None

    async def _hand_on(self, source: AsyncIterator[Any]) -> None:
        try:
            async for entry in source:
                self._queue.put_nowait(entry)
        except KipuError as error:  # what cannot be followed any more is no reason to wait for ever
            self._queue.put_nowait(error)

    async def _watch(self) -> RunOutcome:
        while True:
            entry = await self._queue.get()
            if isinstance(entry, KipuError):
                raise entry
            if isinstance(entry, signal.Signals):
                outcome = await self._signalled(entry)
            elif isinstance(entry, str):
                outcome = await self._parked(in_helper=True)
            elif isinstance(entry, SessionEvent):
                self._report.event(entry)
                outcome = await self._after(entry)
            else:
                self._report.news(entry)
                continue
            if outcome is not None:
                return outcome

    # ---- events ----------------------------------------------------------------------------------------------------

    async def _after(self, event: SessionEvent) -> RunOutcome | None:
        """Take an event in, and return the outcome when it was the last one."""
        if isinstance(event, TurnStartedEvent | TurnResumedEvent):
            self._turn_id, self._finished = event.turn_id, None
            self._settled = None
            if isinstance(event, TurnStartedEvent):
                self._answer = None
            else:
                return await self._parked(in_helper=True)  # where a helper's question was open already
        elif isinstance(event, AgentMessageEvent) and event.turn_id == self._turn_id:
            self._answer = event
        elif isinstance(event, TurnParkedEvent):
            return await self._parked()
        elif isinstance(event, TurnFinishedEvent):
            self._finished = event
            return await self._ended()
        elif isinstance(event, MessageSettledEvent) and self._message_seq in event.seqs:
            self._settled = event.reason
            return await self._ended()
        return None

    async def _ended(self) -> RunOutcome | None:
        """Return the outcome unless the session goes on with another turn."""
        if self._is_interrupted:
            return self._outcome(ExitCode.INTERRUPTED)
        await self._session.refresh()
        if self._session.head.open_turn is not None or self._session.head.waiting:
            return None
        finished = self._finished
        if finished is None:
            return self._outcome(ExitCode.STOPPED, error=f"the message was {self._settled}")
        return self._outcome(_code_of(finished))

    @property
    def _awaits_person(self) -> bool:
        """Return True while the open turn goes no further without a person; whoever wants it to end is one."""
        head = self._session.head
        return head.parked and not head.decided and head.stop != head.open_turn

    async def _parked(self, *, in_helper: bool = False) -> RunOutcome | None:
        """Decide what may be decided, and return the outcome where the rest needs a person."""
        runtime, session_id = self._runtime, self._session.session_id
        questions = await runtime.desk.pending(session_id=session_id)
        if in_helper:  # the session's own turn runs, and says itself when it goes no further
            questions = [approval for approval in questions if approval.session_id != session_id]
        left = await self._consent.decide(runtime, questions)
        if not left or self._is_interrupted or in_helper:
            return None
        await self._session.refresh()
        if not self._awaits_person:
            return None  # somebody was quicker
        if self._consent.waits:
            self._report.asks(left, waits=True)
            return None
        return self._outcome(ExitCode.PARKED, approvals=left)

    def _outcome(
        self, code: ExitCode, *, error: str | None = None, approvals: list[PendingApproval] | None = None
    ) -> RunOutcome:
        finished = self._finished
        return RunOutcome(
            code,
            self._session.session_id,
            turn_id=self._turn_id,
            outcome=finished.outcome if finished else "parked" if approvals else None,
            error=error or (finished.error if finished else None),
            answer=self._answer,
            usage=finished.usage if finished else None,
            approvals=approvals or [],
        )

    # ---- signals ---------------------------------------------------------------------------------------------------

    async def _signalled(self, number: signal.Signals) -> RunOutcome | None:
        """End the turn in order on the first Ctrl-C; leave it open on a second one, and on SIGTERM or SIGHUP."""
        if number != signal.SIGINT:
            return self._outcome(ExitCode.HANDED_OVER)
        if self._is_interrupted:
            return self._outcome(ExitCode.INTERRUPTED)
        self._is_interrupted = True
        session_id, worker = self._session.session_id, self._runtime.worker
        turn_id = await self._runtime.control.stop(session_id)
        if turn_id is None and await self._take_back():
            return self._outcome(ExitCode.INTERRUPTED)
        turn_id = turn_id or await self._runtime.control.stop(session_id)
        worker.stop(session_id, turn_id=turn_id)
        # Ends that turn and begins no other.
        self._drain = asyncio.ensure_future(worker.drain(timeout_s=STOP_GRACE_S))
        return None

    async def _take_back(self) -> bool:
        """Return True when no turn took the message."""
        if self._message_seq is None:
            return True
        try:
            await self._runtime.control.cancel(self._session.session_id, self._message_seq)
        except ConflictError:
            return False
        return True


def _code_of(finished: TurnFinishedEvent) -> ExitCode:
    """Return the exit code of a turn's end."""
    if finished.outcome == "completed":
        return ExitCode.OK
    if finished.outcome != "failed":
        return ExitCode.STOPPED
    is_limit = (finished.error or "").endswith(f"[{TurnLimitError.code}]")
    return ExitCode.LIMIT if is_limit else ExitCode.TURN_FAILED
