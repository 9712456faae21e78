"""Whole turns from the outside: who holds the session when, with whose rights, and what the log tells of them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kipu.context.policy import WindowPolicy
from kipu.events.boundary import CompactionEvent, ConsolidationEvent
from kipu.events.conversation import (
    AgentMessageEvent,
    ModelCallEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from kipu.events.event import SessionEvent
from kipu.events.turn import (
    ApprovalDecisionEvent,
    ApprovalRequestEvent,
    TurnFinishedEvent,
    TurnStartedEvent,
)
from kipu.ports.model import ModelRequest
from kipu.ports.principal import Principal
from kipu.runtime.agent_builder import AgentSettings
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.policy.policy_rule import PolicyRule
from kipu.runtime.policy.tool_policy import PolicyLayer, ToolPolicy
from kipu.runtime.turns.compaction import Compaction
from kipu.runtime.turns.shown_window import replay
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from kipu.wiring import open_manager, open_runtime
from tests.acceptance.runtime.bus_place import said
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, of_type, runtime, until


def calls_once(name: str, **arguments: Any) -> ScriptedModelClient:
    """A model that answers each message with one call, and then says so."""

    def answer(request: ModelRequest) -> ScriptedReply:
        if request.messages[-1]["role"] == "tool":
            return ScriptedReply("Done.")
        return ScriptedReply(calls=[ScriptedCall(name, arguments)])

    return ScriptedModelClient(answer)


@asynccontextmanager
async def bus_runtime(
    model: ScriptedModelClient, *tools: FunctionTool, **parts: Any
) -> AsyncIterator[tuple[Runtime, MessageBus]]:
    async with runtime(model, *tools, **parts) as run:
        yield run, MessageBus(run.manager, wake=run.worker.wake, approvals=run.desk)


async def test_worker_reads_a_session_only_once_it_holds_it(tmp_path: Path) -> None:
    """While somebody else holds the session no turn begins; the one that follows sees what was written meanwhile (A38, C3)."""
    url = f"sqlite:////{tmp_path}/s.db"
    model = ScriptedModelClient(["Seen."])
    async with bus_runtime(model, url=url) as (run, bus), await open_manager(url) as elsewhere:
        receipt = await bus.publish(said("first"))
        await run.settled()
        model.add("Seen again.")
        theirs = await elsewhere.open(receipt.session_id)
        async with theirs.turn(consumes=[]) as turn:
            await bus.publish(said("second"))
            await run.settled()
            assert len(model.requests) == 1, "the session is held elsewhere"
            await turn.add_event(AgentMessageEvent(content="written meanwhile"))
        session = await run.manager.open(receipt.session_id)
        await until(session, TurnFinishedEvent, count=1)
        await run.settled_soon(session)
        async with asyncio.timeout(60):
            while len(model.requests) == 1:
                await run.worker.sweep()
                await run.settled()
        assert "written meanwhile" in str(model.requests[1].messages)
        outline = [kind for kind in [e.event_type async for e in session.events()] if kind.startswith("turn_")]
        assert outline == ["turn_started", "turn_finished"] * 3


async def test_messages_that_enter_the_bus_at_once_are_serial_in_a_session_and_parallel_between() -> None:
    """Of two that enter together the second starts after the first has ended; another session's overlaps both (A43, A36, A65)."""
    inside: list[str] = []
    overlaps: list[set[str]] = []
    other_runs, may_end = asyncio.Event(), asyncio.Event()

    async def work(arguments: Any, context: Any) -> str:
        inside.append(context.session_id)
        overlaps.append(set(inside))
        assert inside.count(context.session_id) == 1
        (other_runs if arguments["who"] == "other" else may_end).set()
        await asyncio.gather(other_runs.wait(), may_end.wait())  # ends only if both sessions work at the same time
        inside.remove(context.session_id)
        return "ok"

    def answer(request: ModelRequest) -> ScriptedReply:
        if request.messages[-1]["role"] == "tool":
            return ScriptedReply("Done.")
        who = "other" if "other" in str(request.messages[-1]) else "mine"
        return ScriptedReply(calls=[ScriptedCall("work", {"who": who})])

    async with bus_runtime(ScriptedModelClient(answer), FunctionTool("work", work)) as (run, bus):
        receipts = await asyncio.gather(
            bus.publish(said("one")), bus.publish(said("two")), bus.publish(said("other", chat_id="43"))
        )
        await run.settled()
        mine = await run.manager.open(receipts[0].session_id)
        spans = [
            event for event in await mine.get_full_history() if event.event_type in ("turn_started", "turn_finished")
        ]
        assert [event.event_type for event in spans] == ["turn_started", "turn_finished"] * 2
        started = [event.consumes for event in spans if isinstance(event, TurnStartedEvent)]
        assert started == [[receipts[0].seq], [receipts[1].seq]]
        assert max(map(len, overlaps)) == 2


async def test_turn_has_the_rights_of_who_sent_its_message() -> None:
    """In one session a rule holds for the one it names and for nobody else: the session lends nobody its rights (A19, A69)."""
    ada, boss = Principal("ada", "acme"), Principal("boss", "acme", frozenset({"admin"}))
    seen: list[str] = []

    async def look(_arguments: Any, context: Any) -> str:
        seen.append(context.principal.id)
        return "seen"

    policy = ToolPolicy([PolicyLayer("user", (PolicyRule("deny", "look", principal="boss"),))])
    async with bus_runtime(calls_once("look"), FunctionTool("look", look), policy=policy) as (run, bus):
        receipt = await bus.publish(said("look"), ada)
        await run.settled()
        await bus.send(receipt.session_id, said("look too"), principal=boss)
        await run.settled()
        session = await run.manager.open(receipt.session_id, principal=ada)
        history = await session.get_full_history(principal=ada)
        results = [event for event in history if isinstance(event, ToolResultEvent)]
        assert [result.synthetic for result in results] == [None, "denied"]
        assert seen == ["ada"]


async def test_log_alone_explains_why_a_call_ran(tmp_path: Path) -> None:
    """From a result one gets back to its call, the answer that made it, what the model was shown, who asked and who allowed (A27, A73)."""
    url = f"sqlite:////{tmp_path}/s.db"
    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    async with bus_runtime(calls_once("write", path="a.txt"), write, url=url) as (run, bus):
        receipt = await bus.publish(said("write it", source_message_id="m1"))
        await run.settled()
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id, reason="looks right")
        await run.settled()
    async with await open_manager(url) as manager:
        session = await manager.open(receipt.session_id)
        history = await session.get_full_history()
        result = only(history, ToolResultEvent)
        call = only([e for e in history if getattr(e, "tool_call_id", None) == result.tool_call_id], ToolCallEvent)
        assert (call.tool_name, call.tool_input) == ("write", {"path": "a.txt"})
        request = only(history, ApprovalRequestEvent)
        decision = only(history, ApprovalDecisionEvent)
        assert (request.tool_call_id, request.shown["reason"]) == (call.tool_call_id, "the default of write")
        assert (decision.approval_id, decision.by, decision.reason) == (request.approval_id, "local", "looks right")
        started = only(history, TurnStartedEvent)
        assert {call.turn_id, result.turn_id, request.turn_id, decision.turn_id} == {started.turn_id}
        asked = next(event for event in history if event.seq == started.consumes[0])
        assert isinstance(asked, UserMessageEvent)
        assert (asked.sender_id, asked.channel, asked.source_message_id) == ("ada", "chat", "m1")
        assert asked.timestamp is not None
        assert asked.timestamp.utcoffset() is not None
        shown = [event for event in history if isinstance(event, ModelCallEvent)]
        assert [(await replay(session, each, store=manager.store)).matches for each in shown] == [True, True]


async def test_session_keeps_every_kind_of_record_over_a_restart(tmp_path: Path) -> None:
    """Texts, calls, results, decisions, summaries, the memory boundary and the channel are read back as they were (A3, B1)."""
    url, small = f"sqlite:////{tmp_path}/s.db", WindowPolicy(max_tokens=2_000)
    write = FunctionTool("write", spec_fields={"default_policy": "ask"})
    async with await open_manager(url, policy=small) as manager:
        async with bus_runtime(calls_once("write", path="a"), write, manager=manager) as (run, bus):
            receipt = await bus.publish(said("write it", thread_id="t9"))
            await run.settled()
            (waiting,) = await run.desk.pending()
            await run.desk.approve(waiting.approval_id)
            await run.settled()
        session = await manager.open(receipt.session_id)
        for number in range(12):
            await session.add_event(UserMessageEvent(content=f"question {number} " + "ask " * 60))
            await session.add_event(AgentMessageEvent(content=f"answer {number} " + "say " * 60))
        await Compaction(session, ScriptedModelClient([])).now()
        last = session.history.last_seq
        await session.add_event(ConsolidationEvent(to_seq=last, memory_ids=["fact-1"]))
        before = [event.model_dump() for event in await session.get_full_history()]
    async with await open_manager(url, policy=small) as manager:
        session = await manager.open(receipt.session_id)
        history = await session.get_full_history()
        assert [event.model_dump() for event in history] == before
        assert session.last_consolidated == last
        assert only(history, CompactionEvent).first_kept_seq == session.history.window.start_seq
        assert only(history, ApprovalDecisionEvent).decision == "approved"
        first = next(event for event in history if isinstance(event, UserMessageEvent))
        assert (first.channel, (first.reply_to or {})["thread_id"]) == ("chat", "t9")
        assert only(history, ToolResultEvent).tool_call_id == only(history, ToolCallEvent).tool_call_id


async def test_long_task_goes_on_over_several_processes(tmp_path: Path) -> None:
    """A task of sixty steps that three workers hand on to one another is done once, step by step (A72, B61, C14)."""
    url = f"sqlite:////{tmp_path}/s.db"
    steps = 60
    done: list[int] = []

    def answer(request: ModelRequest) -> ScriptedReply:
        results = sum(message["role"] == "tool" for message in request.messages)
        if results == steps:
            return ScriptedReply("All of it.")
        return ScriptedReply(calls=[ScriptedCall("step", {"path": str(results)})])

    model, session_id = ScriptedModelClient(answer), ""
    for stop_at in (20, 40, None):
        reached = asyncio.Event()

        async def step(
            arguments: Any, _context: Any, *, stop_at: int | None = stop_at, reached: asyncio.Event = reached
        ) -> str:
            done.append(int(arguments["path"]))
            if len(done) == stop_at:
                reached.set()
            return "ok"

        async with bus_runtime(model, FunctionTool("step", step, {"is_idempotent": True}), url=url) as (run, bus):
            if not session_id:
                session_id = (await bus.publish(said("do it all"))).session_id
            session = await run.manager.open(session_id)
            await asyncio.wait_for(reached.wait() if stop_at else until(session, TurnFinishedEvent), 60)
    async with await open_manager(url) as manager:
        session = await manager.open(session_id)
        results = await of_type(session, ToolResultEvent)
        assert len(results) == len({result.tool_call_id for result in results}) == steps
        assert sorted(set(done)) == list(range(steps))
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
        assert len(await of_type(session, TurnStartedEvent)) == 1


async def test_session_changes_its_model_between_turns(tmp_path: Path) -> None:
    """From the next turn on another provider's model answers, in a window that is valid and without the first one's seals (C28, B37)."""
    first = ScriptedModelClient(
        [
            ScriptedReply("Looking.", reasoning="hm", signature="sealed", calls=[ScriptedCall("read_result", {})]),
            "One.",
        ],
        provider="one",
    )
    second = ScriptedModelClient(["Two."], provider="two", model="other", context_window=8_000)
    clients = {None: first, "two:other": second}
    async with (
        await open_manager("memory://") as manager,
        open_runtime(manager, settings=AgentSettings(tmp_path), open_model=lambda name: clients[name]) as run,
    ):
        receipt = await run.bus.publish(said("first"))
        await run.worker.until_idle()
        session = await manager.open(receipt.session_id)
        await session.set_metadata(model="two:other", temperature=0.5)
        await run.bus.publish(said("second"))
        await run.worker.until_idle()

        (request,) = second.requests
        assert validate_neutral(list(request.messages)) == []
        assert request.settings == {"temperature": 0.5}
        assert "Looking." in str(request.messages)
        assert "sealed" in str(first.requests[1].messages)
        assert "sealed" not in str(request.messages)
        assert [event.model for event in await of_type(session, ModelCallEvent)] == ["one:model-1"] * 2 + ["two:other"]


def only(events: list[SessionEvent], kind: type[Any]) -> Any:
    """Return the one event of a type."""
    (found,) = [event for event in events if isinstance(event, kind)]
    return found
