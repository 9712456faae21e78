"""Helpers of a turn that ends while nobody waits for them: after a restart, before they begin, without an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kipu.errors import ConfigurationError, LeaseLostError
from kipu.events.conversation import ToolResultEvent
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.manager.lock import SessionLock
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.runtime.agent import Agent
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.turns.session_turns import SessionTurns
from kipu.runtime.turns.turn_control import TurnControl
from kipu.testing.scripted_model import ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, OneModelBuilder, Runtime, of_type, runtime, until
from tests.acceptance.runtime.test_delegation import children, family
from tests.acceptance.runtime.test_helper_turns import ASKS, begun
from tests.acceptance.runtime.test_review_delegation import writing

LATE = ScriptedReply("There are 7.", before=lambda: asyncio.sleep(30))


@asynccontextmanager
async def left_family(manager: SessionManager) -> AsyncIterator[Session]:
    """Give a session whose turn and whose helper's turn a process left open in the middle of the helper's answer."""
    model = family(ScriptedReply("a long answer that streams", hold_after=1))
    async with runtime(model, manager=manager, delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(model.held.wait(), 60)
    await session.refresh()
    assert session.head.open_turn is not None
    yield session


async def outcomes(session: Session) -> list[str]:
    return [event.outcome for event in await of_type(session, TurnFinishedEvent)]


async def test_stop_before_anybody_takes_the_turn_up_ends_the_helper_too() -> None:
    """A stop of the parent stops the child, also one that comes while no process has either of them (A44, C13, C14)."""
    async with await open_manager("memory://") as manager, left_family(manager) as session:
        await ControlLane(manager, wake=lambda _session_id: None).stop(session.session_id)
        async with runtime(family(LATE), manager=manager, delegates=True) as run:
            (child,) = await children(run, session)
            async with asyncio.timeout(60):
                await until(session, TurnFinishedEvent)
                await until(child, TurnFinishedEvent)
            assert (await outcomes(session), await outcomes(child)) == (["cancelled"], ["cancelled"])


async def test_task_that_no_turn_took_is_taken_back_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that has not begun when its parent is stopped never begins: its task is settled, and that is said (A44, C12)."""
    run_next = SessionTurns.run_next

    async def helpers_are_elsewhere(self: SessionTurns, control: TurnControl) -> int | None:
        if self._session.head.metadata.get("kipu.parent"):
            raise LeaseLostError(session_id=self._session.session_id, token=1, current=2)
        return await run_next(self, control)

    monkeypatch.setattr(SessionTurns, "run_next", helpers_are_elsewhere)
    async with runtime(family("There are 7."), delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        child = await waiting_child(run, session)
        await ControlLane(run.manager, wake=run.worker.wake).stop(session.session_id)
        await until(session, TurnFinishedEvent)
        monkeypatch.setattr(SessionTurns, "run_next", run_next)
        await run.worker.sweep()
        await run.settled()
        assert [event.reason for event in await of_type(child, MessageSettledEvent)] == ["cancelled"]
        assert await of_type(child, TurnStartedEvent) == []


async def waiting_child(run: Runtime, session: Session) -> Session:
    """Return the helper's session when its task waits there."""
    async with asyncio.timeout(60):
        while True:
            for child in await children(run, session):
                await child.refresh()
                if child.head.waiting:
                    return child
            await asyncio.sleep(0.01)


async def test_turn_whose_agent_cannot_be_built_any_more_ends_its_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a turn fails of, nobody goes on to work for it (C14)."""
    build = OneModelBuilder.build

    async def only_helpers(self: OneModelBuilder, session: Session) -> Agent:
        if not session.head.metadata.get("kipu.parent"):
            raise ConfigurationError(reason="the model is gone")
        return await build(self, session)

    async with await open_manager("memory://") as manager, left_family(manager) as session:
        monkeypatch.setattr(OneModelBuilder, "build", only_helpers)
        async with runtime(family(LATE), manager=manager, delegates=True) as run:
            (child,) = await children(run, session)
            async with asyncio.timeout(60):
                await until(child, TurnFinishedEvent)
                await until(session, TurnFinishedEvent)
            assert (await outcomes(session), await outcomes(child)) == (["failed"], ["cancelled"])


async def test_stop_of_a_parked_parent_counts_what_its_helper_used() -> None:
    """What helpers used counts for the turn that they worked for, however that one ends (A72)."""
    async with runtime(ScriptedModelClient(writing), FunctionTool("write", spec_fields=ASKS), delegates=True) as run:
        session = await begun(run)
        await ControlLane(run.manager, wake=run.worker.wake).stop(session.session_id)
        finished = await until(session, TurnFinishedEvent)
        assert (finished.outcome, finished.usage["helpers"]["steps"]) == ("cancelled", 1)
        (result,) = await of_type(session, ToolResultEvent)
        assert result.synthetic == "cancelled"


async def test_helper_of_an_erased_session_does_nothing_more() -> None:
    """What its parent forbade is gone with the parent: nothing runs that only a turn which is no more had wanted (A19, C20)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with (
        await open_manager("memory://") as manager,
        runtime(ScriptedModelClient(writing), write, manager=manager, delegates=True) as run,
    ):
        session = await begun(run)
        (child,) = await children(run, session)
        await session.set_metadata(policy={"deny": ["write"]})
        async with SessionLock(manager.store, session.session_id, owner="a manager that knows no helpers") as lock:
            assert lock.lease is not None
            await manager.store.erase(session.session_id, lease=lock.lease)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await until(child, TurnFinishedEvent)
        assert (await outcomes(child), write.calls) == (["cancelled"], [])
        assert [event.synthetic for event in await of_type(child, ToolResultEvent)] == ["cancelled"]
        await run.say(child, "write it for me")  # to talk with it is a turn of its own
        await run.settled()
        assert [entry.session_id for entry in await run.desk.pending()] == [child.session_id]


async def test_helper_that_asks_is_ended_with_the_erasure_of_its_parent() -> None:
    """A question whose answer nobody waits for is listed no longer than its parent is there, and its call never runs (C15, C20)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with (
        await open_manager("memory://") as manager,
        runtime(ScriptedModelClient(writing), write, manager=manager, delegates=True) as run,
    ):
        session = await begun(run)
        (child,) = await children(run, session)
        assert len(await run.desk.pending()) == 1
        assert await manager.delete_session(session.session_id)
        async with asyncio.timeout(60):
            await until(child, TurnFinishedEvent)
        await run.settled_soon(child)
        assert (await outcomes(child), write.calls, await run.desk.pending()) == (["cancelled"], [], [])
