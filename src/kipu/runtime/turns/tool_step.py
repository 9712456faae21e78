"""The calls of one answer, brought to their results: judged, asked about, run, recorded; or the turn parks for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import Any

from kipu.errors import ConflictError, TurnStoppedError
from kipu.events.conversation import ToolResultEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import ApprovalDecisionEvent
from kipu.ports.tool import JsonObject
from kipu.runtime.turns.approval_gate import DENIED, ApprovalGate, Verdict
from kipu.runtime.turns.tool_execution import ToolExecution
from kipu.runtime.turns.turn_run import TurnRun
from kipu.session.turn_story import OpenCall

CANCELLED_TEXT = "Cancelled: the turn was ended before this call had a result."
SKIPPED_TEXT = "Skipped: a new message came in first. Ask again if this is still wanted."
Judged = tuple[OpenCall, Verdict]


class ToolStep:
    """Bring every open call of a turn to exactly one result, each step appended before the next (C14, C15)."""

    def __init__(
        self,
        gate: ApprovalGate,
        execution: ToolExecution,
        *,
        is_steered: Callable[[TurnRun], Awaitable[bool]],
        expire: Callable[[TurnRun], Awaitable[datetime | None]],
    ) -> None:
        self._gate = gate
        self._execution = execution
        self._is_steered = is_steered
        self._expire = expire

    async def settle(self, run: TurnRun) -> bool:
        """Run the open calls to their results; return False when the turn was parked for a person instead.

        Raises: TurnStoppedError; the calls are open then, and `close` ends them.
        """
        before_seq = -1
        while run.story.open_calls:
            await run.catch_up()
            run.control.check()
            if run.session.history.last_seq == before_seq:  # a round that adds nothing would be the last one for ever
                raise RuntimeError(f"the calls of turn {run.turn.id} get nowhere")
            before_seq = run.session.history.last_seq
            judged = [(call, await self._gate.judge(run, call)) for call in run.story.open_calls]
            await self._close_and_ask(run, judged)
            ready = [entry for entry in judged if entry[1].kind == "run" and entry[0].id not in run.parked]
            await self._run(run, ready)
            if not run.story.open_calls:  # the boundary before the model call looks what came in
                break
            await run.catch_up()
            run.control.check()
            if run.story.open_calls and all(_waits(run, call) for call in run.story.open_calls):
                if await self._is_steered(run):
                    await self.skip(run)
                    return True
                if await self._park(run):
                    return False
        return True

    async def close(self, run: TurnRun) -> None:
        """End every open call of a stopped turn as cancelled, and what was asked about them as denied."""
        used: dict[str, JsonObject | None] = {}
        for call in run.story.open_calls:
            if call.starts:  # by a process that did not live to end it, too
                used[call.id] = (await self._execution.withdraw(run, call)).usage
        events = closing_events(run.story.open_calls, used=used)
        if events:
            await run.add(*events)

    async def skip(self, run: TurnRun) -> None:
        """End the calls that have not started, or wait elsewhere, as skipped: a message steers the turn to something else.

        One that a process began and did not live to end is left open: it has to be brought to its own result.
        """
        events: list[SessionEvent] = []
        for call in run.story.open_calls:
            if not call.starts:
                events += [*_denial(call, by="a message that came in"), _synthetic(call, SKIPPED_TEXT, "skipped")]
            elif call.parks or call.id in run.parked:
                left = await self._execution.withdraw(run, call)
                skipped = _synthetic(call, f"{SKIPPED_TEXT} {left.content}", "skipped")
                events.append(skipped.model_copy(update={"usage": left.usage}))
        if events:
            await run.add(*events)

    async def _close_and_ask(self, run: TurnRun, judged: Sequence[Judged]) -> None:
        events: list[SessionEvent] = []
        for call, verdict in judged:
            if verdict.kind == "refuse":
                events.append(_refusal(call, verdict))
            elif verdict.kind == "answer":
                result = ToolResultEvent(tool_call_id=call.id, tool_name=call.call.tool_name, result=verdict.reason)
                events.append(result)
            elif verdict.kind == "ask" and call.request is None:
                events.append(await self._gate.request(call, verdict, context=self._execution.context(run)))
        if events:
            await run.add(*events)

    async def _run(self, run: TurnRun, ready: Sequence[Judged]) -> None:
        """Run calls without side effects together, every other one alone and in order; a steering message skips the rest.

        Not those that a process began which is gone: a turn that left them open would find them again, and so for ever.
        """
        batches: list[list[Judged]] = []
        for changes, entries in groupby(ready, key=lambda entry: self._execution.has_side_effect(entry[0])):
            group = list(entries)
            batches += [[entry] for entry in group] if changes else [group]
        for number, batch in enumerate(batches):
            if number:  # else it was looked a moment ago
                await run.catch_up()
                run.control.check()
            if await self._is_steered(run):
                await self.skip(run)
            left = await self._still_ready(run, batch) if number else batch
            await self._together(run, [entry for entry in left if entry[0].id in run.story.calls])

    async def _still_ready(self, run: TurnRun, batch: Sequence[Judged]) -> list[Judged]:
        """Judge again what was judged before other calls ran: rules and grants may have changed, and times have passed."""
        again = [(call, await self._gate.judge(run, call)) for call, _ in batch]
        return [entry for entry in again if entry[1].kind == "run"]

    async def _together(self, run: TurnRun, batch: Sequence[Judged]) -> None:
        tasks = [
            asyncio.ensure_future(self._execution.run(run, call, arguments=verdict.arguments))
            for call, verdict in batch
        ]
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        for failure in outcomes:
            if isinstance(failure, BaseException) and not isinstance(failure, TurnStoppedError):
                raise failure
        run.control.check()

    async def _park(self, run: TurnRun) -> bool:
        """Park until somebody decides, a question ends or a waiting message has waited too long; False if the log moved."""
        waits_for: list[str] = []
        ends: list[datetime | None] = [await self._expire(run)]
        for call in run.story.open_calls:
            elsewhere = run.parked.get(call.id)
            if elsewhere is not None:
                waits_for += elsewhere.data["waits_for"]
                ends.append(elsewhere.data["until"])
            elif call.request is not None:
                waits_for.append(call.request.approval_id)
                ends.append(call.request.expires_at)
        until = min((end for end in ends if end is not None), default=None)
        try:  # what comes in between has to be looked at: it may want to be settled before that
            await run.turn.park(waits_for, until=until, expected_seq=run.session.history.last_seq)
        except ConflictError:
            return False
        return True


def _waits(run: TurnRun, call: OpenCall) -> bool:
    return call.awaits_decision or call.id in run.parked


def _refusal(call: OpenCall, verdict: Verdict) -> ToolResultEvent:
    return ToolResultEvent(
        tool_call_id=call.id,
        tool_name=call.call.tool_name,
        result=verdict.reason,
        is_error=True,
        error_info=verdict.error_info,
        synthetic=verdict.synthetic,
    )


def closing_events(
    calls: Sequence[OpenCall], *, used: Mapping[str, JsonObject | None] = MappingProxyType({})
) -> list[SessionEvent]:
    """Return what ends these calls with their turn: each one cancelled, and what was asked about it denied.

    `used` says by a call's id what it has spent.
    """
    events: list[SessionEvent] = []
    for call in calls:
        cancelled = _synthetic(call, CANCELLED_TEXT, "cancelled").model_copy(update={"usage": used.get(call.id)})
        events += [*_denial(call, by="the end of its turn"), cancelled]
    return events


def _denial(call: OpenCall, *, by: str) -> list[SessionEvent]:
    """Return the answer to the question about a call that nobody is asked any more."""
    if call.request is None or call.decision is not None:
        return []
    return [ApprovalDecisionEvent(approval_id=call.request.approval_id, decision=DENIED, by=by)]


def _synthetic(call: OpenCall, text: str, why: Any) -> ToolResultEvent:
    return ToolResultEvent(
        tool_call_id=call.id, tool_name=call.call.tool_name, result=text, is_error=True, error_info=why, synthetic=why
    )
