"""Sub-agents as sessions: a call answered by a session of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kipu.events.conversation import ToolResultEvent
from kipu.events.turn import StopRequestedEvent, TurnFinishedEvent
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, of_type, runtime, until


def texts(request: ModelRequest) -> str:
    return " ".join(str(message["content"]) for message in request.messages if message["role"] == "user")


def family(child: ScriptedReply | str) -> Any:
    """A parent that delegates once and reports, and a child that answers `child`."""

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if "count the files" in texts(request):
            return child
        if request.messages[-1]["role"] == "tool":
            return "The helper is done."
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "count the files", "title": "counter"})])

    return ScriptedModelClient(answer)


async def children(run: Runtime, parent: Session) -> list[Session]:
    heads = [head async for head in run.manager.heads() if (head.metadata.get("kipu.parent") or {}) != {}]
    assert all(head.metadata["kipu.parent"]["session_id"] == parent.session_id for head in heads)
    return [await run.manager.open(head.session_id) for head in heads]


async def parked_child(run: Runtime, parent: Session) -> None:
    """Wait until a child of the parent waits for a person."""
    async with asyncio.timeout(60):
        async for stored in run.manager.store.follow():
            if stored.session_id != parent.session_id and stored.record.event_type == "turn_parked":
                return


async def test_delegated_task_is_answered_by_a_session_of_its_own() -> None:
    """The child has its own history, knows its parent, and its answer is the call's result (B3, A72)."""
    async with runtime(family("There are 7."), delegates=True) as run:
        session = await run.session()
        await run.say(session, "how many files?")
        await run.settled()
        (result,) = await of_type(session, ToolResultEvent)
        assert result.result.startswith("There are 7.")
        (child,) = await children(run, session)
        assert child.session_id in result.result
        assert child.title == "counter"
        assert child.head.metadata["kipu.parent"]["depth"] == 1
        assert "how many files" not in str(await child.get_context_for_llm("neutral"))


async def test_child_inherits_rules_and_never_more() -> None:
    """What the parent's session forbids its child is forbidden too, and its steps are bounded by both (A19)."""
    look = FunctionTool("look")
    child = ScriptedReply(calls=[ScriptedCall("look")])

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if "count the files" in texts(request):
            return "Nothing to see." if request.messages[-1]["role"] == "tool" else child
        if request.messages[-1]["role"] == "tool":
            return "Done."
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "count the files", "max_steps": 50})])

    async with runtime(ScriptedModelClient(answer), look, delegates=True) as run:
        session = await run.session()
        await session.set_metadata(policy={"deny": ["look"]}, limits={"max_steps": 9})
        await run.say(session, "go")
        await run.settled()
        assert look.calls == []
        (made,) = await children(run, session)
        assert made.head.metadata["limits"] == {"max_steps": 9}
        assert made.head.metadata["policy"] == {"deny": ["look"]}


async def test_helpers_do_not_delegate_without_end() -> None:
    """At the third level the call is refused, and every turn ends."""

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if request.messages[-1]["role"] == "tool":
            return "Done."
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "deeper"})])

    async with runtime(ScriptedModelClient(answer), delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        heads = [head async for head in run.manager.heads()]
        assert sorted((head.metadata.get("kipu.parent") or {}).get("depth", 0) for head in heads) == [0, 1, 2]
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]


async def test_stop_of_the_parent_ends_the_child() -> None:
    """A stop closes both turns in order, the child's first."""
    model = family(ScriptedReply("a long answer that streams", hold_after=1))
    async with runtime(model, delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(model.held.wait(), 60)
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or ""))
        await run.settled_soon(session)
        (child,) = await children(run, session)
        assert [event.outcome for event in await of_type(child, TurnFinishedEvent)] == ["cancelled"]
        (result,) = await of_type(session, ToolResultEvent)
        assert result.synthetic == "cancelled"


async def test_child_that_waits_for_a_person_is_answered_over_a_restart(tmp_path: Path) -> None:
    """A child parks for an approval while its process goes away; the next one finds it again, once (C14, C15)."""
    url = f"sqlite:////{tmp_path}/s.db"
    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if request.messages[-1]["role"] == "tool":
            return "Written." if "write it" in texts(request) else "The helper wrote it."
        if "write it" in texts(request):
            return ScriptedReply(calls=[ScriptedCall("write")])
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"})])

    async with runtime(ScriptedModelClient(answer), write, url=url, delegates=True) as run:
        session_id = (await run.session()).session_id
        parked = asyncio.ensure_future(parked_child(run, await run.session()))
        await asyncio.sleep(0)
        await run.say(await run.session(), "go")
        await parked
    async with (
        await open_manager(url) as manager,
        runtime(ScriptedModelClient(answer), write, manager=manager, delegates=True) as run,
    ):
        session = await manager.open(session_id)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        finished = await until(session, TurnFinishedEvent)
        assert finished.outcome == "completed"
        assert len(write.calls) == 1
        assert len(await children(run, session)) == 1
        (result,) = await of_type(session, ToolResultEvent)
        assert result.result.startswith("Written.")
