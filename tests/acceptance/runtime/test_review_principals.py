"""A session of somebody in a tenant works end to end, though the process itself is nobody there (C19, A20)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import SessionNotFoundError
from kipu.events.boundary import CompactionEvent, NoteEvent
from kipu.events.content import MediaPart, TextPart
from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.events.turn import ApprovalRequestEvent, DeliveryEvent, TurnFinishedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.ports.principal import Principal
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.messages.delivery import Delivery
from kipu.runtime.messages.outbound import Outbound
from kipu.runtime.runtime import Runtime
from kipu.runtime.workspaces.checkpoints import undo
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager, open_runtime
from tests.acceptance.runtime.bus_place import said
from tests.acceptance.runtime.fakes import FunctionTool, runtime
from tests.acceptance.runtime.test_delegation import parked_child

ADA = Principal("ada", "acme")
BOSS = Principal("boss", "acme", frozenset({"admin"}))
PICTURE = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10_000


async def events_of(session: Session, kind: type[Any]) -> list[Any]:
    return [event async for event in session.events(principal=ADA) if isinstance(event, kind)]


def script(request: ModelRequest) -> Any:
    """Write a file, then ask a helper, then answer."""
    said_by_people = str([message for message in request.messages if message["role"] == "user"])
    if "count the files" in said_by_people:
        return "There are 7."
    results = sum(message["role"] == "tool" for message in request.messages)
    if "plain" in str(request.messages[-1]):
        return "Plain answer."
    if results == 0:
        return ScriptedReply(calls=[ScriptedCall("write_file", {"path": "a.txt", "content": "hello"})])
    if results == 1:
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "count the files"})])
    return "All done."


def coding(manager: SessionManager, place: Path) -> Runtime:
    model = ScriptedModelClient(script)
    settings = AgentSettings(place / "workspaces", sandbox="off")
    return open_runtime(manager, settings=settings, open_model=lambda _name: model, delivering=("chat",))


async def decide_all(run: Runtime, session: Session) -> None:
    """Let the tenant's administrator allow whatever is asked until no turn is open."""
    async with asyncio.timeout(60):
        while True:
            await run.worker.until_idle()
            await session.refresh()
            if session.head.open_turn is None and not session.head.waiting:
                return
            for waiting in await run.desk.pending(principal=BOSS):
                await run.desk.approve(waiting.approval_id, principal=BOSS, scope="session")
            await asyncio.sleep(0)


async def test_session_of_a_tenant_works_end_to_end(tmp_path: Path) -> None:
    """Bus, worker, checkpoint, approval, helper, summary, outbound, delivery and undo: each acts for the owner (C19)."""
    sent: list[Outbound] = []

    async def send(outbound: Outbound) -> str:
        sent.append(outbound)
        return f"p{len(sent)}"

    async with await open_manager(f"sqlite:///{tmp_path}/s.db") as manager, coding(manager, tmp_path) as run:
        async with Delivery(manager, {"chat": send}) as delivery:
            receipt = await run.bus.publish(said("write it"), ADA)
            session = await manager.open(receipt.session_id, principal=ADA)
            outbounds = await run.bus.subscribe(session.session_id, after=0, principal=ADA)
            await decide_all(run, session)
            assert [event.outcome for event in await events_of(session, TurnFinishedEvent)] == ["completed"]
            reply = await asyncio.wait_for(anext(aiter(outbounds)), 60)
            assert reply.content == "All done."
            async with asyncio.timeout(60):
                while session.head.undelivered:
                    await delivery.sweep()
                    await delivery.settle()
                    await session.refresh()
        assert [outbound.content for outbound in sent] == ["All done."]
        assert [event.status for event in await events_of(session, DeliveryEvent)] == ["claimed", "sent"]
        results = await events_of(session, ToolResultEvent)
        assert [result.is_error for result in results] == [False, False]
        assert len(await events_of(session, ApprovalRequestEvent)) == 1
        assert any(note.kind == "kipu.checkpoint" for note in await events_of(session, NoteEvent))
        (status,) = [await run.control.status(session.session_id, principal=ADA)]
        assert status.state == "idle"
        await undone(run, session)


async def undone(run: Runtime, session: Session) -> None:
    agent = await run.orchestrator.switch_to_session(session.session_id, principal=ADA)
    workspace = await run.builder.workspaces.open(session)
    recorder = await run.builder.workspaces.recorder(session, workspace)
    assert (workspace.root / "a.txt").read_bytes() == b"hello"
    went = await undo(session, agent.parts.workspace, recorder=recorder, principal=ADA)
    assert went.paths == ["a.txt"]
    assert not (workspace.root / "a.txt").exists()


async def test_picture_of_a_tenant_is_shown() -> None:
    """A message whose picture is a blob is answered, turn by turn, in a session that is not the process's own (C19)."""
    async with (
        await open_manager("memory://") as manager,
        runtime(ScriptedModelClient(["A cat."]), manager=manager) as run,
    ):
        session = await manager.get_or_create("test:1", principal=ADA)
        digest = await manager.store.put_blob(session.session_id, PICTURE)
        picture = MediaPart(media_type="image/png", blob=digest, size=len(PICTURE))
        message = UserMessageEvent(content=[TextPart(text="what is it?"), picture], queued=True)
        await session.add_event(message, principal=ADA)
        run.worker.wake(session.session_id)
        await run.settled()
        (finished,) = await events_of(session, TurnFinishedEvent)
        assert (finished.outcome, finished.error) == ("completed", None)
        shown = await session.render("anthropic", principal=ADA)
        assert "image/png" in str(shown.messages)


async def test_lost_picture_bricks_no_session() -> None:
    """Where the bytes of a picture are gone, the model is told that there was one, and the session goes on (C16)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("test:1", principal=ADA)
        picture = MediaPart(media_type="image/png", blob="sha256:" + "0" * 64, size=100)
        await session.add_event(UserMessageEvent(content=[TextPart(text="look"), picture]), principal=ADA)
        shown = await session.get_context_for_llm("anthropic", principal=ADA)
        assert "look" in str(shown)


async def test_summary_of_a_tenant_by_a_command() -> None:
    """`/compact` of a session that is somebody's appends under their name, and a stranger gets nothing (C19, C20)."""
    async with await open_manager("memory://") as manager, runtime(ScriptedModelClient([]), manager=manager) as run:
        session = await manager.get_or_create("test:1", principal=ADA)
        for number in range(200):
            await session.add_event(UserMessageEvent(content=f"question {number} " + "ask " * 900), principal=ADA)
        agent = await run.orchestrator.switch_to_session(session.session_id, principal=ADA)
        with pytest.raises(SessionNotFoundError):
            await agent.compaction.now(principal=Principal("eve", "acme"))
        await agent.compaction.now(principal=ADA)
        assert [event.principal for event in await events_of(session, CompactionEvent)] == ["ada"]


async def test_always_for_somebody_elses_call_is_kept_and_the_turn_goes_on() -> None:
    """What an administrator started in ada's session and another allows for good is allowed for that administrator (C15)."""
    tool = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")]), "Done."])
    root = Principal("root", "acme", frozenset({"admin"}))
    async with await open_manager("memory://") as manager, runtime(model, tool, manager=manager) as run:
        session = await manager.get_or_create("test:1", principal=ADA)
        await session.add_event(UserMessageEvent(content="go", queued=True), principal=root)
        run.worker.wake(session.session_id)
        await run.settled()
        (waiting,) = await run.desk.pending(principal=BOSS)
        assert waiting.shown["requested_by"] == "root"
        await run.desk.approve(waiting.approval_id, principal=BOSS, scope="session")
        await run.settled()
        assert len(tool.calls) == 1
        grants = [name for name in session.head.metadata if name.startswith("grant.")]
        assert [session.head.metadata[name]["principal"] for name in grants] == ["root"]


async def test_helper_works_for_whoever_asked() -> None:
    """A helper's calls are judged for the author of the parent's turn, not for the owner of the session (A19)."""
    tool = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    root = Principal("root", "acme", frozenset({"admin"}))

    def answer(request: ModelRequest) -> Any:
        if request.messages[-1]["role"] == "tool":
            return "Done."
        if "write it" in str(request.messages):
            return ScriptedReply(calls=[ScriptedCall("write")])
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"})])

    async with (
        await open_manager("memory://") as manager,
        runtime(ScriptedModelClient(answer), tool, manager=manager, delegates=True) as run,
    ):
        session = await manager.get_or_create("test:1", principal=ADA)
        await session.add_event(UserMessageEvent(content="go", queued=True), principal=root)
        parked = asyncio.ensure_future(parked_child(run, session))
        await asyncio.sleep(0)
        run.worker.wake(session.session_id)
        await parked
        found = await run.desk.pending(principal=BOSS)
        assert found[0].shown["requested_by"] == "root"
        await run.desk.deny(found[0].approval_id, principal=BOSS)
        await run.settled()


async def test_requester_may_take_their_own_question_back() -> None:
    """Who asked does not approve themselves, but may say no (C15)."""
    tool = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")]), "Done."])
    async with await open_manager("memory://") as manager, runtime(model, tool, manager=manager) as run:
        session = await manager.get_or_create("test:1", principal=ADA)
        await session.add_event(UserMessageEvent(content="go", queued=True), principal=ADA)
        run.worker.wake(session.session_id)
        await run.settled()
        (waiting,) = await run.desk.pending(principal=ADA)
        await run.desk.deny(waiting.approval_id, principal=ADA)
        await run.settled()
        assert session.head.open_turn is None
        assert tool.calls == []
