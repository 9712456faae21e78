"""Edges of helpers: whose turn runs where, what stops with what, and what waiting costs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import LeaseLostError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import ToolResultEvent, ToolStartedEvent, UserMessageEvent
from kipu.events.turn import ApprovalDecisionEvent, StopRequestedEvent, TurnFinishedEvent, TurnStartedEvent
from kipu.manager.loader import HistoryReader
from kipu.ports.model import ModelRequest
from kipu.ports.principal import Principal
from kipu.ports.tool import ToolContext
from kipu.runtime.turns.session_turns import SessionTurns
from kipu.runtime.turns.turn_control import TurnControl
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, of_type, runtime, until
from tests.acceptance.runtime.test_delegation import children, family, parked_child, texts


def writing(request: ModelRequest) -> ScriptedReply | str:
    """A parent that delegates the writing, and a helper that writes."""
    if request.messages[-1]["role"] == "tool":
        return "Written." if "write it" in texts(request) else "The helper wrote it."
    if "write it" in texts(request):
        return ScriptedReply(calls=[ScriptedCall("write")])
    return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"})])


async def test_stop_of_the_parent_ends_a_helper_that_waits_for_a_person() -> None:
    """A helper whose question nobody answered is ended with its parent, and its question denied (A44, C15)."""
    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    async with runtime(ScriptedModelClient(writing), write, delegates=True) as run:
        session = await run.session()
        parked = asyncio.ensure_future(parked_child(run, session))
        await asyncio.sleep(0)
        await run.say(session, "go")
        await parked
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or ""))
        await run.settled_soon(session)
        (child,) = await children(run, session)
        await run.settled_soon(child)
        assert [event.outcome for event in await of_type(child, TurnFinishedEvent)] == ["cancelled"]
        assert [event.decision for event in await of_type(child, ApprovalDecisionEvent)] == ["denied"]
        assert await run.desk.pending() == []
        assert write.calls == []


async def test_helper_whose_lease_is_taken_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that takes a helper's turn over is waited for: its parent's own lease is not lost by that (C3)."""
    run_next, lost = SessionTurns.run_next, 0

    async def losing_once(self: SessionTurns, control: TurnControl) -> int | None:
        nonlocal lost
        if self._session.head.metadata.get("kipu.parent") and not lost:
            lost += 1
            raise LeaseLostError(session_id=self._session.session_id, token=1, current=2)
        return await run_next(self, control)

    monkeypatch.setattr(SessionTurns, "run_next", losing_once)
    async with runtime(family("There are 7."), delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        assert lost == 1
        (result,) = await of_type(session, ToolResultEvent)
        assert result.result.startswith("There are 7.")
        assert len(await of_type(session, ToolStartedEvent)) == 1


async def test_waiting_for_a_helper_reads_what_is_new_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is appended to a helper while its parent waits, each event is read a bounded number of times (C10)."""
    read = 0
    forwards = HistoryReader.forwards

    async def counting(self: HistoryReader, **fields: Any) -> Any:
        nonlocal read
        page = await forwards(self, **fields)
        read += len(page)
        return page

    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    async with runtime(ScriptedModelClient(writing), write, delegates=True) as run:
        session = await run.session()
        parked = asyncio.ensure_future(parked_child(run, session))
        await asyncio.sleep(0)
        await run.say(session, "go")
        await parked
        (child,) = await children(run, session)
        monkeypatch.setattr(HistoryReader, "forwards", counting)
        for number in range(100):
            await child.add_event(NoteEvent(kind="test", data={"number": number}))
            await asyncio.sleep(0)
        read_while_waiting = read
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await until(session, TurnFinishedEvent)
        assert read_while_waiting <= 300


async def test_message_to_a_helper_gets_a_turn_and_changes_no_result() -> None:
    """Who writes to a helper's session after its task is answered talks to it; the parent's result stays what it was."""
    async with runtime(family("There are 7."), delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (child,) = await children(run, session)
        await child.add_event(UserMessageEvent(content="count the files once more", queued=True))
        run.worker.wake(child.session_id)
        await run.settled()
        assert len(await of_type(child, TurnStartedEvent)) == 2
        assert len(await of_type(session, ToolResultEvent)) == 1


async def test_killed_parent_finds_its_helpers_answer_again(tmp_path: Path) -> None:
    """A helper that ended while its parent was gone is not asked twice: the call that is run again finds its answer (C14)."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with runtime(family("There are 7."), url=url, delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (child,) = await children(run, session)
        call = (await of_type(session, ToolStartedEvent))[0].tool_call_id
        agent = await run.orchestrator.switch_to_session(session.session_id)
        tool = agent.parts.toolbox.find("delegate")
        assert tool is not None
        context = ToolContext(session.session_id, "turn", call, Principal.local())
        again = await asyncio.wait_for(tool.run({"task": "count the files"}, context), 60)
        assert again.content.startswith("There are 7.")
        assert len(await of_type(child, TurnStartedEvent)) == 1
        assert len(await children(run, session)) == 1


async def test_erased_parent_leaves_its_helpers_listed_and_readable() -> None:
    """A helper is a session of its own: it is listed, and outlives its parent until somebody erases it (B27, B58)."""
    async with (
        await open_manager("memory://") as manager,
        runtime(family("There are 7."), manager=manager, delegates=True) as run,
    ):
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (child,) = await children(run, session)
        assert await manager.delete_session(session.session_id)
        assert [head.session_id async for head in manager.heads()] == [child.session_id]
        assert await manager.delete_session(child.session_id)


async def test_stop_of_a_helper_is_heard_at_once() -> None:
    """Who stops a helper in the middle of its answer ends that answer, and the parent is told (A44, C13)."""
    model = family(ScriptedReply("a long answer that streams", hold_after=1))
    async with runtime(model, delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(model.held.wait(), 60)
        (child,) = await children(run, session)
        await child.refresh()
        await child.add_event(StopRequestedEvent(turn_id=child.head.open_turn or ""))
        await asyncio.wait_for(until(session, TurnFinishedEvent), 60)
        assert [event.outcome for event in await of_type(child, TurnFinishedEvent)] == ["cancelled"]
        (result,) = await of_type(session, ToolResultEvent)
        assert result.error_info == "cancelled"
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
