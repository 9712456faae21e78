"""What goes on in a session whose turn waits for a person, and in a process whose sessions end elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ModelUnavailableError, SessionNotFoundError
from kipu.events.turn import MessageSettledEvent, TurnFinishedEvent, TurnParkedEvent
from kipu.manager.session import Session
from kipu.ports.model import ModelDescription
from kipu.ports.principal import Principal
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.models.model_shelf import ModelShelf
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.bus_place import said
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, runtime, until

ASKS: dict[str, Any] = {"default_policy": "ask", "has_side_effect": True}
WRITES = ScriptedReply(calls=[ScriptedCall("write")])


async def parked(run: Runtime, bus: MessageBus, **fields: Any) -> Session:
    receipt = await bus.publish(said("go", **fields))
    session = await run.manager.open(receipt.session_id)
    await until(session, TurnParkedEvent)
    await run.settled()
    return session


@pytest.mark.parametrize("when", ["before", "after"])
async def test_message_expires_while_the_turn_is_parked(when: str) -> None:
    """What waits behind a question is settled when it has waited too long, not when somebody answers at last (C12)."""
    write = FunctionTool("write", spec_fields=ASKS)
    hold = ScriptedReply(calls=[ScriptedCall("write")], hold_after=0)
    model = ScriptedModelClient([hold if when == "before" else WRITES, "Written."])
    async with runtime(model, write, sweep_s=30.0) as run:
        bus = MessageBus(run.manager, wake=run.worker.wake)
        late = said("too late", policy={"ttl_ms": 300})
        if when == "before":
            first = await bus.publish(said("go"))
            await model.held.wait()
            receipt = await bus.publish(late)
            model.release()
            session = await run.manager.open(first.session_id)
        else:
            session = await parked(run, bus)
            receipt = await bus.publish(late)
        settled = await until(session, MessageSettledEvent)
        assert (settled.seqs, settled.reason) == ([receipt.seq], "expired")
        await until(session, TurnParkedEvent, count=2 if when == "after" else 1)
        await run.settled()
        assert session.head.parked
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert len(write.calls) == 1


async def test_message_expires_in_a_parked_session_after_a_restart(tmp_path: Path) -> None:
    """The head says when a parked session is to be looked at, so that any process settles what expires there (C12)."""
    url, write = f"sqlite:///{tmp_path}/s.db", FunctionTool("write", spec_fields=ASKS)
    async with runtime(ScriptedModelClient([WRITES]), write, url=url) as run:
        session_id = (await parked(run, MessageBus(run.manager, wake=run.worker.wake))).session_id
    async with await open_manager(url) as manager:
        await MessageBus(manager).publish(said("too late", policy={"ttl_ms": 50}))
    async with (
        await open_manager(url) as manager,
        runtime(ScriptedModelClient([]), write, manager=manager) as run,
    ):
        session = await manager.open(session_id)
        assert (await until(session, MessageSettledEvent)).reason == "expired"


async def test_agent_of_an_erased_session_ends(tmp_path: Path) -> None:
    """Nothing of a session runs on in a process after it was erased, by whichever process (C20, B49)."""
    url, look = f"sqlite:///{tmp_path}/s.db", FunctionTool("look")
    async with runtime(ScriptedModelClient(["hi", "hi"]), look, url=url, sweep_s=30.0) as run:
        sessions = [await run.session(key) for key in ("test:1", "test:2")]
        for session in sessions:
            await run.say(session, "hello")
        await run.settled()
        assert len(run.orchestrator) == 2
        async with await open_manager(url) as elsewhere:
            assert await elsewhere.delete_session(sessions[0].session_id)
        await run.worker.sweep()
        assert look.closed == 1
        assert len(run.orchestrator) == 1


class LanguageModel(ScriptedModelClient):
    """One that summaries are asked of."""

    def describe(self) -> ModelDescription:
        return replace(super().describe(), is_ai=True)


async def test_summary_is_not_made_for_whom_the_session_is_not() -> None:
    """Who may not append a summary costs no model call, and learns of no session (C19)."""
    model = LanguageModel(["hi", "a summary"])
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "hello")
        await run.settled()
        agent = await run.orchestrator.switch_to_session(session.session_id)
        with pytest.raises(SessionNotFoundError):
            await agent.compaction.now(principal=Principal("mallory"))
        assert len(model.requests) == 1


async def test_models_that_nobody_uses_are_closed() -> None:
    """However many models a process asks for, only some stay open; one that an agent has is never closed (B49)."""
    now, opened = 0.0, dict[str, ScriptedModelClient]()

    def open_model(name: str | None) -> ScriptedModelClient:
        if name == "broken":
            raise ModelUnavailableError(model="broken", status=500, reason="no", retry_after_s=None)
        return opened.setdefault(name or "", ScriptedModelClient([]))

    shelf = ModelShelf(open_model, monotonic_s=lambda: now, max_models=3, idle_s=10.0)
    for number in range(20):
        assert shelf.get(str(number)) is shelf.get(str(number))
    with pytest.raises(ModelUnavailableError):
        shelf.get("broken")
    assert await shelf.tidy([]) == 0  # somebody may be about to use them
    now = 11.0
    assert await shelf.tidy([opened["0"], opened["19"]]) == 15
    assert sorted(name for name, client in opened.items() if not client.closed) == ["0", "16", "17", "18", "19"]
    await shelf.close()
    assert all(client.closed for client in opened.values())
