"""Edges of turns: draining, steering while a person is asked, faults of tools and agents, handovers, closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import BlobNotFoundError, ConfigurationError, LeaseLostError, StoreFullError, StoreUnavailableError
from kipu.events.boundary import NoteEvent, RewindEvent
from kipu.events.conversation import ToolCallEvent, ToolResultEvent, ToolStartedEvent, UserMessageEvent
from kipu.events.turn import (
    StopRequestedEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)
from kipu.manager.session import Session
from kipu.ports.store import StoredEvent
from kipu.ports.tool import ToolPreview
from kipu.runtime.agent import Agent, AgentParts
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.tools.toolbox import Toolbox
from kipu.runtime.turns.spending import TurnLimits
from kipu.runtime.turns.tool_execution import ToolExecution
from kipu.runtime.worker import Worker
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, OneModelBuilder, Runtime, of_type, runtime, until


def asking(name: str = "write") -> FunctionTool:
    return FunctionTool(name, spec_fields={"default_policy": "ask", "has_side_effect": True})


async def outcomes(session: Session) -> list[str]:
    return [event.outcome for event in await of_type(session, TurnFinishedEvent)]


async def open_calls(session: Session) -> set[str]:
    """The ids of calls that have no result in the log."""
    made = {event.tool_call_id for event in await of_type(session, ToolCallEvent)}
    return made - {event.tool_call_id for event in await of_type(session, ToolResultEvent)}


async def failed_and_goes_on(run: Runtime, session: Session) -> None:
    """The session's only turn failed with every call closed, and it has another when somebody says something."""
    assert await outcomes(session) == ["failed"]
    assert await open_calls(session) == set()
    await run.say(session, "and now?")
    await run.settled()
    assert await outcomes(session) == ["failed", "completed"]


async def test_draining_begins_no_turn_for_who_waits_in_line() -> None:
    """A session that waits for a free place gets no turn once the worker drains, and nothing runs when it has drained."""
    model = ScriptedModelClient([ScriptedReply("slow", hold_after=0), "must not be said"])
    async with runtime(model, max_turns=1) as run:
        first, second = await run.session("test:1"), await run.session("test:2")
        await run.say(first, "go")
        await asyncio.wait_for(model.held.wait(), 60)
        await run.say(second, "me too")
        await run.worker.drain(timeout_s=0.0)
        assert run.worker.running == frozenset()
        assert await of_type(second, TurnStartedEvent) == []
        assert second.head.waiting != ()
        assert first.head.open_turn is not None, "it is left to be taken over"


async def test_steering_message_ends_the_questions_of_its_turn() -> None:
    """A message that joins while a person would be asked closes the call first: the model never sees it open (A2, A42, C12)."""
    steered = asyncio.Event()

    async def slow(_arguments: Any, _context: Any) -> str:
        await steered.wait()
        return "slow done"

    calls = [ScriptedCall("write"), ScriptedCall("slow")]
    model = ScriptedModelClient([ScriptedReply(calls=calls), "As you like."])
    write, busy = asking(), FunctionTool("slow", slow)
    async with runtime(model, write, busy) as run:
        session = await run.session()
        await run.say(session, "go")
        async with asyncio.timeout(60):
            async for event in session.follow():
                if event.event_type == "approval_request":
                    break
        await run.say(session, "do not write", busy={"mode": "steer"})
        steered.set()
        await run.settled()
        assert await open_calls(session) == set()
        assert await of_type(session, TurnParkedEvent) == []
        assert await outcomes(session) == ["completed"]
        skipped = [event for event in await of_type(session, ToolResultEvent) if event.synthetic == "skipped"]
        assert [event.tool_name for event in skipped] == ["write"]
        assert await run.desk.pending() == []
        assert validate_neutral(list(model.requests[-1].messages)) == []
        assert write.calls == []


@pytest.mark.parametrize("changes", [False, True])
async def test_steering_message_waits_for_a_call_that_a_dead_process_began(tmp_path: Path, changes: bool) -> None:
    """A turn that is taken up with a message to steer it brings what had begun to its result, and skips the rest (A42, C12, C14)."""
    begun = asyncio.Event()

    async def hang(_arguments: Any, _context: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    url, fields = f"sqlite:///{tmp_path}/s.db", {"is_idempotent": True, "has_side_effect": changes}
    calls = [ScriptedCall("read"), ScriptedCall("write")]
    model = ScriptedModelClient([ScriptedReply(calls=calls)])
    async with runtime(model, FunctionTool("read", hang, fields), FunctionTool("write", hang, fields), url=url) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(begun.wait(), 60)
        if not changes:  # both began side by side
            await until(session, ToolStartedEvent, count=2)
        await run.worker.drain(timeout_s=0.0)
        await run.say(session, "something else", busy={"mode": "steer"})
        assert len(await open_calls(session)) == 2
    tools = FunctionTool("read", spec_fields=fields), FunctionTool("write", spec_fields=fields)
    async with runtime(ScriptedModelClient(["As you like."]), *tools, url=url) as run:
        session = await run.session()
        await run.settled_soon(session)
        assert await outcomes(session) == ["completed"]
        results = {event.tool_name: event.synthetic for event in await of_type(session, ToolResultEvent)}
        assert results == {"read": None, "write": "skipped" if changes else None}
        assert [len(tool.calls) for tool in tools] == [1, 0 if changes else 1]
        assert [event.consumes for event in await of_type(session, TurnSteeredEvent)] != []


async def test_calls_that_get_nowhere_fail_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keeps a call from its result, the turn ends, and its worker serves others: it does not look again for ever (A2, A35)."""

    async def nothing(*_arguments: Any, **_named: Any) -> None: ...

    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("read")]), "Next."])
    async with runtime(model, FunctionTool("read")) as run:
        session = await run.session()
        with monkeypatch.context() as patched:
            patched.setattr(ToolExecution, "run", nothing)
            await run.say(session, "go")
            await run.settled()
        await failed_and_goes_on(run, session)


async def test_preview_that_fails_is_no_fault_of_the_turn() -> None:
    """A tool that cannot say what it would do is asked about all the same."""

    class Broken(FunctionTool):
        async def preview(self, arguments: Any, context: Any) -> ToolPreview:
            raise KeyError("nowhere")

    tool = Broken("write", spec_fields={"default_policy": "ask"})
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")]), "Done."])
    async with runtime(model, tool) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled()
        assert await outcomes(session) == ["completed"]
        assert len(tool.calls) == 1


async def test_fault_nobody_thought_of_leaves_no_call_open() -> None:
    """Whatever breaks within a turn, it ends once, failed, and every call it made has a result (A2, A35)."""

    class Broken(FunctionTool):
        def subject(self, arguments: Any) -> str:
            raise RuntimeError("a fault in a tool")

    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")]), "Next."])
    async with runtime(model, Broken("write")) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        await failed_and_goes_on(run, session)


async def test_tool_that_names_a_lost_blob_is_a_result() -> None:
    """What a tool does not find in the store is the tool's fault, and not the log's."""

    async def read(_arguments: Any, _context: Any) -> str:
        raise BlobNotFoundError(store="memory://", session_id="s", digest="sha256:0")

    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("read")]), "Not there."])
    async with runtime(model, FunctionTool("read", read)) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        assert await outcomes(session) == ["completed"]
        (result,) = await of_type(session, ToolResultEvent)
        assert result.is_error


class FailingBuilder(OneModelBuilder):
    """Builds agents until it is told that it cannot."""

    fails = False

    async def build(self, session: Session) -> Agent:
        if self.fails:
            raise ConfigurationError(reason="the model is gone")
        return await super().build(session)


async def parked_then_without_agent(session: Session, run: Any) -> None:
    """Park a turn, then let its agent be gone for good."""
    await run.say(session, "go")
    await run.settled()
    assert session.head.parked
    await run.orchestrator.cleanup_session(session.session_id)
    run.builder.fails = True


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.acceptance.runtime.fakes.OneModelBuilder", FailingBuilder)


@pytest.mark.usefixtures("failing")
async def test_turn_whose_agent_is_gone_closes_its_calls() -> None:
    """A parked turn that cannot go on, since its agent cannot be made, ends failed with nothing left open (A35, C14)."""
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")])])
    async with runtime(model, asking()) as run:
        session = await run.session()
        await parked_then_without_agent(session, run)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled()
        assert await outcomes(session) == ["failed"]
        assert await open_calls(session) == set()


@pytest.mark.usefixtures("failing")
async def test_rollback_of_a_turn_whose_agent_is_gone_ends_it() -> None:
    """A wish to undo never keeps a turn open: what cannot be judged is refused, and said (C12)."""
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")])])
    async with runtime(model, asking()) as run:
        session = await run.session()
        await parked_then_without_agent(session, run)
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or "", mode="rollback"))
        run.worker.wake(session.session_id)
        await run.settled_soon(session)
        assert len(await outcomes(session)) == 1


async def test_rollback_is_refused_after_a_tool_that_is_gone(tmp_path: Path) -> None:
    """Of a tool that is not there any more nobody knows what it did outside: its turn is not undone unasked (C12)."""
    url = f"sqlite:///{tmp_path}/s.db"
    gone = FunctionTool("post", spec_fields={"has_side_effect": True, "is_external": True})
    calls = [ScriptedReply(calls=[ScriptedCall("post")]), ScriptedReply(calls=[ScriptedCall("write")])]
    async with runtime(ScriptedModelClient(calls), gone, asking(), url=url) as run:
        session = await run.session()
        await run.say(session, "go")
        await run.settled()
        assert session.head.parked
        session_id = session.session_id
    async with runtime(ScriptedModelClient([]), asking(), url=url) as run:
        session = await run.manager.open(session_id)
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or "", mode="rollback"))
        run.worker.wake(session_id)
        await run.settled_soon(session)
        assert await of_type(session, RewindEvent) == []
        assert [note.kind for note in await of_type(session, NoteEvent)] == ["kipu.rollback_refused"]


async def test_agent_that_cannot_be_closed_costs_nobody_else() -> None:
    """A tool that fails when it is closed fails no other session's turn, and the worker goes on looking for work (B49)."""

    class Broken(FunctionTool):
        async def aclose(self) -> None:
            self.closed += 1
            raise RuntimeError("cannot be closed")

    tool = Broken("look")
    async with await open_manager("memory://") as manager:
        builder = OneModelBuilder(manager, ScriptedModelClient([]), lambda: [tool])
        orchestrator = Orchestrator(manager, builder, max_agents=1, monotonic_s=lambda: 0.0)
        first, second = await manager.get_or_create("test:1"), await manager.get_or_create("test:2")
        async with orchestrator.using(first):
            pass
        async with orchestrator.using(second):
            assert len(orchestrator) == 1
        assert tool.closed == 1
        await first.set_metadata(env={"A": "1"})
        await orchestrator.switch_to_session(first.session_id)
        await orchestrator.close()


async def test_agent_closes_everything_though_one_part_fails() -> None:
    """Whatever one part does when it is closed, the others are closed too (B49)."""

    class Broken(FunctionTool):
        async def aclose(self) -> None:
            raise RuntimeError("cannot be closed")

    model = ScriptedModelClient([])
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("test:1")
        agent = Agent(session, AgentParts(model, Toolbox([Broken("look")]), owns_model=True), manager=manager)
        with pytest.raises(RuntimeError):
            await agent.aclose()
        assert model.closed == 1


async def test_agent_that_somebody_uses_is_not_replaced() -> None:
    """A setting that changes while an agent is in use makes a new one afterwards, and closes nothing under its user (B45)."""
    tool = FunctionTool("look")
    async with runtime(ScriptedModelClient([]), tool) as run:
        session = await run.session()
        async with run.orchestrator.using(session) as agent:
            await session.set_metadata(env={"A": "1"})
            assert await run.orchestrator.switch_to_session(session.session_id) is agent
            assert tool.closed == 0
        assert await run.orchestrator.switch_to_session(session.session_id) is not agent


async def test_worker_hears_stops_after_its_store_failed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment in which the store cannot be followed costs no wish to stop (C13, C16)."""
    model = ScriptedModelClient([ScriptedReply("long", hold_after=0)])
    async with await open_manager("memory://") as manager:
        follow, failures = manager.store.follow, 0

        def failing_once(session_id: str | None = None, **how: Any) -> AsyncIterator[StoredEvent]:
            nonlocal failures
            if session_id is None and not failures:
                failures += 1
                return _broken()
            return follow(session_id, **how)

        monkeypatch.setattr(manager.store, "follow", failing_once)
        async with runtime(model, manager=manager) as run:
            session = await run.session()
            await run.say(session, "go")
            await asyncio.wait_for(model.held.wait(), 60)
            turn_id = session.head.open_turn or ""
            await manager.store.head(session.session_id)
            await session.add_event(StopRequestedEvent(turn_id=turn_id))  # as another process: nobody is woken
            await run.settled_soon(session)
            assert failures == 1
            assert await outcomes(session) == ["cancelled"]


async def _broken() -> AsyncIterator[StoredEvent]:
    raise StoreUnavailableError(store="memory://", reason="for a moment")
    yield  # pragma: no cover


async def test_rule_that_comes_while_a_call_runs_holds_for_the_next() -> None:
    """What is forbidden while the first of two calls runs does not run as the second (A19)."""
    sessions: list[Session] = []

    async def narrow(_arguments: Any, _context: Any) -> str:
        await sessions[0].set_metadata(policy={"deny": ["write"]})
        return "ok"

    first = FunctionTool("first", narrow, spec_fields={"has_side_effect": True})
    write = FunctionTool("write", spec_fields={"has_side_effect": True})
    calls = [ScriptedCall("first"), ScriptedCall("write")]
    async with runtime(ScriptedModelClient([ScriptedReply(calls=calls), "Done."]), first, write) as run:
        session = await run.session()
        sessions.append(session)
        await run.say(session, "go")
        await run.settled()
        assert write.calls == []
        assert [event.synthetic for event in await of_type(session, ToolResultEvent)] == [None, "denied"]
        assert await outcomes(session) == ["completed"]


async def test_turn_that_is_handed_over_again_and_again_is_not_given_up(tmp_path: Path) -> None:
    """Ending a process in order is no try in vain: only a turn whose processes die is given up (C14, EV-18)."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("test:1")
        await session.add_event(UserMessageEvent(content="go", queued=True))
        session_id = session.session_id
    for _ in range(12):
        model = ScriptedModelClient([ScriptedReply("slow", hold_after=0)])
        async with runtime(model, url=url) as run:
            run.worker.wake(session_id)
            await asyncio.wait_for(model.held.wait(), 60)
    async with runtime(ScriptedModelClient(["At last."]), url=url) as run:
        session = await run.manager.open(session_id)
        finished = await until(session, TurnFinishedEvent)
        assert (finished.outcome, finished.error) == ("completed", None)


async def test_approved_arguments_are_checked_again() -> None:
    """What a person put in place of the arguments is validated, and judged by policy, like what the model wrote (A19, C15)."""
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = FunctionTool("write", spec_fields={"default_policy": "ask", "parameters": parameters})
    calls = [ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})])] * 2
    async with runtime(ScriptedModelClient([*calls, "Done."]), tool) as run:
        session = await run.session()
        await session.set_metadata(policy={"deny": ["write(secret*)"]})
        await run.say(session, "go")
        for arguments in ({"path": 7}, {"path": "secret.txt"}):
            await run.settled()
            (waiting,) = await run.desk.pending()
            await run.desk.approve(waiting.approval_id, arguments=arguments)
        await run.settled()
        assert tool.calls == []
        words = [event.error_info for event in await of_type(session, ToolResultEvent)]
        assert words == ["arguments_invalid", "denied"]
        assert await outcomes(session) == ["completed"]


async def test_turns_limit_of_time_ends_a_call_that_has_none() -> None:
    """A call without a time of its own may take what its turn may; then it is ended, and the turn with it."""

    async def hang(_arguments: Any, _context: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    tool = FunctionTool("hang", hang, spec_fields={"timeout_s": None})
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("hang")]), "Not said."])
    async with runtime(model, tool, limits=TurnLimits(max_seconds=3.0)) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(run.worker.until_idle(), 60)
        (finished,) = await of_type(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert "its limit is 3 s" in finished.error
        assert len(tool.calls) == len(model.requests) == 1
        assert await open_calls(session) == set()


async def test_full_disk_in_the_middle_of_a_turn_costs_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the log cannot be written for a moment, the turn stays open and is taken up again, its call run once (C14, C16)."""
    monkeypatch.setattr("kipu.runtime.worker.FAULT_RETRY_S", 0.05)
    tool = FunctionTool("post", spec_fields={"has_side_effect": True})
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("post")]), "I cannot know whether it was posted."])
    async with await open_manager("memory://") as manager:
        append, failures = manager.store.append, 0

        async def full_once(session_id: str, records: Any, **how: Any) -> Any:
            nonlocal failures
            if not failures and any(record.event_type == "tool_result" for record in records):
                failures += 1
                raise StoreFullError(store="memory://", reason="no space left")
            return await append(session_id, records, **how)

        monkeypatch.setattr(manager.store, "append", full_once)
        async with runtime(model, tool, manager=manager) as run:
            session = await run.session()
            await run.say(session, "go")
            (finished,) = [await asyncio.wait_for(until(session, TurnFinishedEvent), 60)]
            assert finished.outcome == "completed"
            assert len(tool.calls) == 1
            assert [event.synthetic for event in await of_type(session, ToolResultEvent)] == ["interrupted"]


async def test_turn_that_waits_in_quarantine_is_left_alone_by_a_drain(tmp_path: Path) -> None:
    """A process that ends before it came to an open turn leaves no trace in it, and no try (C14)."""
    url = f"sqlite:///{tmp_path}/s.db"
    model = ScriptedModelClient(lambda _request: ScriptedReply("slow", hold_after=0))
    async with await open_manager(url) as manager:
        sessions = [await manager.get_or_create(f"test:{number}") for number in range(3)]
        for session in sessions:
            await session.add_event(UserMessageEvent(content="go", queued=True))
            async with session.turn() as turn:
                turn.leave_open()
            for _ in range(6):
                async with session.resumed_turn() as turn:  # as by a process that died with it
                    turn.leave_open()
        before = [len(await session.get_full_history()) for session in sessions]
        async with runtime(model, manager=manager) as run:
            for session in sessions:
                run.worker.wake(session.session_id)
            await asyncio.wait_for(model.held.wait(), 60)
        after = [len(await session.get_full_history()) for session in sessions]
        assert sum(now > then for then, now in zip(before, after, strict=True)) == 1


async def test_limits_are_each_turns_own() -> None:
    """What earlier turns used counts for none of the later ones, however many there are."""
    model = ScriptedModelClient(lambda _request: "ok")
    async with runtime(model, limits=TurnLimits(max_steps=2)) as run:
        session = await run.session()
        for number in range(4):
            await run.say(session, f"message {number}")
            await run.settled()
        assert await outcomes(session) == ["completed"] * 4
        assert len(model.requests) == 4


async def test_work_of_others_hides_none_of_ones_own() -> None:
    """However many sessions wait for somebody else, a worker finds those that it serves (A41)."""
    async with await open_manager("memory://") as manager:
        sessions = [await manager.get_or_create(f"test:{number}") for number in range(130)]
        for session in sessions:
            await session.add_event(UserMessageEvent(content="go", queued=True))
        session = sessions[-1]
        model = ScriptedModelClient(["Mine."])
        orchestrator = Orchestrator(manager, OneModelBuilder(manager, model, list), monotonic_s=lambda: 0.0)
        serves = {session.session_id}
        async with Worker(manager, orchestrator, max_turns=1, sweep_s=0.01, accepts=serves.__contains__):
            finished = await asyncio.wait_for(until(session, TurnFinishedEvent), 60)
        assert finished.outcome == "completed"
        assert len(model.requests) == 1
        await orchestrator.close()


async def test_new_session_for_a_key_takes_nothing_from_a_turn_that_runs() -> None:
    """`/new` while the old session is at work leaves its turn its lease: it is answered there (A39, C3)."""
    model = ScriptedModelClient([ScriptedReply("a long answer that streams", hold_after=1)])
    async with runtime(model) as run:
        session = await run.session()
        await run.say(session, "go")
        await asyncio.wait_for(model.held.wait(), 60)
        fresh = await run.manager.new_session("test:1")
        model.release()
        await run.settled()
        assert fresh.session_id != session.session_id
        assert await outcomes(session) == ["completed"]
        assert len(model.requests) == 1


async def test_turn_whose_lock_was_given_back_appends_nothing() -> None:
    """Whoever gives a turn's lock back under it ends its right to append, though nobody else has taken it (C3)."""
    async with await open_manager("memory://") as manager:
        session = await manager.get_or_create("test:1")
        async with session.turn() as turn:
            lease = session.lock.lease
            assert lease is not None
            session.lock._lease = None
            await manager.store.release(lease)
            with pytest.raises(LeaseLostError):
                await turn.add_event(NoteEvent(kind="test", data={}))
            turn.leave_open()
        assert await of_type(session, NoteEvent) == []
