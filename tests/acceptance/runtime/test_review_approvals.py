"""What counts of a decision is decided by the log alone: which was first, in time, and about what was asked (C15)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kipu.events.conversation import (
    AgentMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    ToolStartedEvent,
    UserMessageEvent,
)
from kipu.events.turn import (
    ApprovalDecisionEvent,
    ApprovalRequestEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnResumedEvent,
)
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.policy.arguments_hash import arguments_hash
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime, until

NAME, ARGUMENTS = "write", {"path": "a"}


def asking() -> FunctionTool:
    return FunctionTool(NAME, spec_fields={"default_policy": "ask", "has_side_effect": True})


async def asked(
    manager: SessionManager, *, digest: str | None = None, expires_in_s: float = 60.0, starts: int = 0
) -> Session:
    """A session whose turn waits for a decision about one call, as another process left it."""
    session = await manager.get_or_create("test:1")
    await session.add_event(UserMessageEvent(content="go", queued=True))
    expires_at = datetime.now(UTC) + timedelta(seconds=expires_in_s)
    async with session.turn() as turn:
        call = ToolCallEvent(tool_name=NAME, tool_input=ARGUMENTS, tool_call_id="call_1")
        await turn.add_events([AgentMessageEvent(content=""), call])
        await turn.add_event(
            ApprovalRequestEvent(
                approval_id="appr_1",
                tool_call_id="call_1",
                arguments_hash=digest or arguments_hash(NAME, ARGUMENTS),
                expires_at=expires_at,
            )
        )
        await turn.park(["appr_1"], until=expires_at)
    return session


async def decide(session: Session, decision: str) -> None:
    """Append a decision as any program may; nobody looks at it before the turn goes on."""
    await session.add_event(ApprovalDecisionEvent(approval_id="appr_1", decision=decision, by="somebody"))


async def gone_on(manager: SessionManager, session: Session) -> tuple[FunctionTool, list[Any]]:
    """Let a worker take the turn to its end; return the tool and the call's results."""
    tool = asking()
    async with runtime(ScriptedModelClient(["Done."]), tool, manager=manager) as run:
        run.worker.wake(session.session_id)
        await run.settled_soon(session)
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
    return tool, await of_type(session, ToolResultEvent)


@pytest.mark.parametrize(("first", "second", "runs"), [("denied", "approved", 0), ("approved", "denied", 1)])
async def test_first_decision_in_the_log_counts(first: str, second: str, runs: int) -> None:
    """Of two decisions that both came into the log, the first one is met (C15)."""
    async with await open_manager("memory://") as manager:
        session = await asked(manager)
        await decide(session, first)
        await decide(session, second)
        tool, results = await gone_on(manager, session)
        assert len(tool.calls) == runs
        assert len(results) == 1


async def test_approval_of_something_else_runs_nothing() -> None:
    """A request whose hash is not that of its call was not about this call: it is refused, whatever was decided (C15)."""
    async with await open_manager("memory://") as manager:
        session = await asked(manager, digest=arguments_hash(NAME, {"path": "harmless"}))
        await decide(session, "approved")
        tool, (result,) = await gone_on(manager, session)
        assert tool.calls == []
        assert (result.synthetic, result.error_info) == ("denied", "changed")


async def test_decision_that_came_too_late_runs_nothing() -> None:
    """An approval that was written after the question had expired is none (C15)."""
    async with await open_manager("memory://") as manager:
        session = await asked(manager, expires_in_s=-1.0)
        await decide(session, "approved")
        tool, (result,) = await gone_on(manager, session)
        assert tool.calls == []
        assert (result.synthetic, result.error_info) == ("denied", "expired")


async def test_decision_before_the_turn_parks_is_not_waited_for() -> None:
    """A decision that comes while another call of the answer still runs is met without a park in between (C15, A44)."""
    decided = asyncio.Event()

    async def slow(_arguments: Any, _context: Any) -> str:
        await decided.wait()
        return "slow done"

    tool = asking()
    calls = [ScriptedCall(NAME, ARGUMENTS), ScriptedCall("slow")]
    model = ScriptedModelClient([ScriptedReply(calls=calls), "Done."])
    async with runtime(model, tool, FunctionTool("slow", slow)) as run:
        session = await run.session()
        await run.say(session, "go")
        request = await until(session, ApprovalRequestEvent)
        await run.desk.approve(request.approval_id)
        decided.set()
        await run.settled()
        assert tool.calls == [ARGUMENTS]
        assert await of_type(session, TurnParkedEvent) == []


async def test_start_of_a_call_is_a_step_of_a_turn_whose_processes_die() -> None:
    """Tries are counted from the last step on; a call that was started is one, and has a limit of its own (C14, EV-18)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("test:1")
        await session.add_event(UserMessageEvent(content="go", queued=True))
        call = ToolCallEvent(tool_name=NAME, tool_input=ARGUMENTS, tool_call_id="call_1")
        async with session.turn() as turn:
            await turn.add_events([AgentMessageEvent(content=""), call])
            turn.leave_open()
        for number in range(12):
            async with session.resumed_turn() as turn:
                if number == 5:
                    await turn.add_event(ToolStartedEvent(tool_call_id="call_1"))
                turn.leave_open()
        async with runtime(ScriptedModelClient(["Done."]), FunctionTool(NAME), manager=manager) as run:
            run.worker.wake(session.session_id)
            await run.settled_soon(session)
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert finished.outcome == "completed"


async def test_turn_that_kills_its_process_each_time_is_given_up() -> None:
    """After ten tries that got nowhere the turn ends as failed, with its calls closed, and the session goes on (C14, EV-18)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("test:1")
        await session.add_event(UserMessageEvent(content="go", queued=True))
        async with session.turn() as turn:
            call = ToolCallEvent(tool_name=NAME, tool_input=ARGUMENTS, tool_call_id="call_1")
            await turn.add_events([AgentMessageEvent(content=""), call])
            turn.leave_open()
        for _ in range(9):
            async with session.resumed_turn() as turn:  # as by a process that died with it
                turn.leave_open()
        tool = FunctionTool(NAME)
        async with runtime(ScriptedModelClient(["Never."]), tool, manager=manager) as run:
            run.worker.wake(session.session_id)
            await run.settled_soon(session)
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert "taken up 10 times" in finished.error
        assert len(await of_type(session, TurnResumedEvent)) == 10
        assert [event.synthetic for event in await of_type(session, ToolResultEvent)] == ["cancelled"]
        assert tool.calls == []
