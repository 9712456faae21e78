"""What a helper shares with the turn it works for: the waiting, the budget, the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.cli.helper_sessions import parked_helpers
from kipu.events.conversation import ToolResultEvent
from kipu.events.turn import (
    ApprovalDecisionEvent,
    ApprovalRequestEvent,
    StopRequestedEvent,
    TurnFinishedEvent,
    TurnParkedEvent,
    TurnSteeredEvent,
)
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest, ModelUsage
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.turns.spending import TurnLimits
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, of_type, runtime, until
from tests.acceptance.runtime.test_delegation import children, parked_child, texts
from tests.acceptance.runtime.test_review_delegation import writing

ASKS = {"default_policy": "ask", "has_side_effect": True}
USED = ModelUsage(100, 50)


async def parked(session: Session) -> None:
    await until(session, TurnParkedEvent)


async def begun(run: Runtime) -> Session:
    """Begin a turn whose helper asks a person, and wait until it is parked."""
    session = await run.session()
    await run.say(session, "go")
    await parked(session)
    await run.settled()
    return session


async def test_parent_parks_while_its_helper_waits_for_a_person() -> None:
    """Nothing is held meanwhile, above the helper neither, and the question is seen from the parent (C15, A71)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with runtime(ScriptedModelClient(writing), write, delegates=True) as run:
        session = await begun(run)
        assert run.worker.running == frozenset()
        (child,) = await children(run, session)
        heads = [await run.manager.store.head(each.session_id) for each in (session, child)]
        assert all(head is not None and head.parked and head.lease_owner is None for head in heads)
        (waiting,) = await run.desk.pending(session_id=session.session_id)
        assert (waiting.session_id, waiting.helper_of) == (child.session_id, session.session_id)
        assert [event.waits_for for event in await of_type(session, TurnParkedEvent)] == [[waiting.approval_id]]
        await run.desk.approve(waiting.approval_id, session_id=session.session_id)
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert len(write.calls) == 1
        (told,) = await of_type(session, ApprovalDecisionEvent)
        assert (told.approval_id, told.decision, told.by) == (waiting.approval_id, "approved", "local")
        (result,) = await of_type(session, ToolResultEvent)
        assert result.result.startswith("Written.")


async def test_decision_that_did_not_reach_the_parent_reaches_it_with_the_helpers_turn() -> None:
    """A crash between the decision and what tells the parent of it leaves nobody waiting (C14)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with runtime(ScriptedModelClient(writing), write, delegates=True) as run:
        session = await begun(run)
        (child,) = await children(run, session)
        (waiting,) = await run.desk.pending()
        await child.add_event(ApprovalDecisionEvent(approval_id=waiting.approval_id, decision="approved", by="local"))
        run.worker.wake(child.session_id)
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert len(write.calls) == 1


async def test_decision_reaches_a_parent_whose_worker_does_not_serve_the_helper() -> None:
    """A worker that serves only some sessions goes on with theirs, though what told of the decision never came (C14)."""
    write, served = FunctionTool("write", spec_fields=ASKS), set[str]()
    async with runtime(ScriptedModelClient(writing), write, delegates=True, accepts=served.__contains__) as run:
        served.add((await run.session()).session_id)
        session = await begun(run)
        (child,) = await children(run, session)
        (waiting,) = await run.desk.pending()
        await child.add_event(ApprovalDecisionEvent(approval_id=waiting.approval_id, decision="approved", by="local"))
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert len(write.calls) == 1


@pytest.mark.parametrize("whose", ["parent", "helper"])
async def test_stop_reaches_parent_and_helper_while_both_are_parked(whose: str) -> None:
    """A stop of the parent closes both in order; a stop of the helper is the call's result (A44, C13)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with runtime(ScriptedModelClient(writing), write, delegates=True) as run:
        session = await begun(run)
        (child,) = await children(run, session)
        control = ControlLane(run.manager, wake=run.worker.wake)
        await control.stop((session if whose == "parent" else child).session_id)
        finished = await until(session, TurnFinishedEvent)
        assert finished.outcome == ("cancelled" if whose == "parent" else "completed")
        assert [event.outcome for event in await of_type(child, TurnFinishedEvent)] == ["cancelled"]
        assert [event.decision for event in await of_type(child, ApprovalDecisionEvent)] == ["denied"]
        (result,) = await of_type(session, ToolResultEvent)
        assert result.error_info == "cancelled"
        assert await run.desk.pending() == []
        assert write.calls == []


async def test_helper_that_waits_beside_a_busy_one_is_told_of() -> None:
    """Where another call keeps the parent busy, a helper's question is told of all the same, and can be decided (C13)."""
    write, release = FunctionTool("write", spec_fields=ASKS), asyncio.Event()

    async def slowly(_arguments: Any, _context: Any) -> str:
        await release.wait()
        return "looked"

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if request.messages[-1]["role"] == "tool" or "write it" in texts(request):
            return writing(request)
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"}), ScriptedCall("look")])

    async with runtime(ScriptedModelClient(answer), write, FunctionTool("look", slowly), delegates=True) as run:
        session = await run.session()
        told = asyncio.ensure_future(anext(parked_helpers(run.manager, session_id=session.session_id)))
        await asyncio.sleep(0)
        await run.say(session, "go")
        helper_id = await asyncio.wait_for(told, 60)
        (waiting,) = await run.desk.pending(session_id=session.session_id)
        assert waiting.session_id == helper_id
        assert not session.head.parked
        await run.desk.approve(waiting.approval_id)
        release.set()
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert len(write.calls) == 1


async def test_expired_question_of_a_helper_lets_both_go_on() -> None:
    """Nobody decides in time: the helper is told no, and its parent gets its answer (C15)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with runtime(ScriptedModelClient(writing), write, delegates=True, approval_ttl_s=0.3) as run:
        session = await run.session()
        await run.say(session, "go")
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        assert write.calls == []


async def test_message_that_steers_ends_a_helper_that_waits() -> None:
    """What a person says before the turn parks comes first: the helper is stopped and the model sees the message (C12)."""
    write = FunctionTool("write", spec_fields=ASKS)
    release = asyncio.Event()

    async def slowly(_arguments: Any, _context: Any) -> str:
        await release.wait()
        return "looked"

    look = FunctionTool("look", slowly)

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if "write it" in texts(request):
            return ScriptedReply(calls=[ScriptedCall("write")])
        if request.messages[-1]["role"] == "user" and "go" in texts(request) and "wait" not in texts(request):
            return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"}), ScriptedCall("look")])
        return "As you say."

    async with runtime(ScriptedModelClient(answer), write, look, delegates=True) as run:
        session = await run.session()
        helper_asked = asyncio.ensure_future(parked_child(run, session))
        await asyncio.sleep(0)
        await run.say(session, "go")
        await helper_asked
        await run.say(session, "wait, don't", busy={"mode": "steer"})
        release.set()
        await until(session, TurnSteeredEvent)
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        (child,) = await children(run, session)
        assert [event.outcome for event in await of_type(child, TurnFinishedEvent)] == ["cancelled"]
        results = {event.tool_name: event.synthetic for event in await of_type(session, ToolResultEvent)}
        assert results == {"delegate": "skipped", "look": None}
        assert write.calls == []


async def test_message_that_steers_a_parked_parent_ends_the_helper_once_somebody_decides() -> None:
    """What was said while both are parked is met when the turn goes on: it does not go round between the two wishes (A42, C12)."""
    write = FunctionTool("write", spec_fields=ASKS)

    def answer(request: ModelRequest) -> ScriptedReply | str:
        return "As you say." if "something else" in texts(request) else writing(request)

    async with runtime(ScriptedModelClient(answer), write, delegates=True) as run:
        session = await begun(run)
        (waiting,) = await run.desk.pending()
        await run.say(session, "something else", busy={"mode": "steer"})
        assert session.head.parked
        await run.desk.deny(waiting.approval_id)
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        (result,) = await of_type(session, ToolResultEvent)
        assert result.synthetic == "skipped"
        assert [event.consumes for event in await of_type(session, TurnSteeredEvent)] != []
        (child,) = await children(run, session)
        await until(child, TurnFinishedEvent)
        assert write.calls == []


def hungry(answers: int) -> Callable[[ModelRequest], ScriptedReply | str]:
    """A parent that delegates twice, one after the other, and helpers that take `answers` model calls each."""

    def answer(request: ModelRequest) -> ScriptedReply | str:
        told = sum(message["role"] == "tool" for message in request.messages)
        if "write it" in texts(request):
            return (
                ScriptedReply(calls=[ScriptedCall("look")], usage=USED)
                if told < answers - 1
                else ScriptedReply("Done.", usage=USED)
            )
        if told < 2:
            return ScriptedReply(calls=[ScriptedCall("delegate", {"task": f"write it {told}"})], usage=USED)
        return ScriptedReply("Both are done.", usage=USED)

    return answer


@pytest.mark.parametrize(
    ("limits", "word"),
    [(TurnLimits(max_tokens=700), "tokens"), (TurnLimits(max_steps=5), "steps")],
)
async def test_helpers_spending_counts_toward_their_parents_limit(limits: TurnLimits, word: str) -> None:
    """Tokens and steps of helpers are the parent's too: what is left is theirs together, and the turn ends at its limit."""
    look = FunctionTool("look")
    model = ScriptedModelClient(hungry(3))
    async with runtime(model, look, delegates=True, limits=limits, base_limits=limits) as run:
        session = await run.session()
        await run.say(session, "go")
        finished = await until(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert word in (finished.error or "")
        assert len(model.requests) == 5
        assert finished.usage["steps"] + finished.usage["helpers"]["steps"] == 5


async def test_helpers_spending_is_counted_after_a_restart(tmp_path: Path) -> None:
    """What a helper used before its process went away is in the logs, and counts for its parent afterwards (A72)."""
    url = f"sqlite:///{tmp_path}/s.db"
    write = FunctionTool("write", spec_fields=ASKS)
    three = TurnLimits(max_steps=3)
    limits: dict[str, Any] = {"limits": three, "base_limits": three}

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if "write it" in texts(request):
            return ScriptedReply(calls=[ScriptedCall("write")], usage=USED)
        return ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"})], usage=USED)

    async with runtime(ScriptedModelClient(answer), write, url=url, delegates=True, **limits) as run:
        session_id = (await begun(run)).session_id
    model = ScriptedModelClient(answer)
    async with (
        await open_manager(url) as manager,
        runtime(model, write, manager=manager, delegates=True, **limits) as run,
    ):
        session = await manager.open(session_id)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        finished = await until(session, TurnFinishedEvent)
        assert finished.outcome == "failed"
        assert len(model.requests) == 1  # the third of all
        (result,) = await of_type(session, ToolResultEvent)
        assert result.usage["steps"] == 2


async def test_helpers_side_by_side_share_what_is_left() -> None:
    """Two helpers at once have one budget between them, not one each."""
    look = FunctionTool("look")

    def answer(request: ModelRequest) -> ScriptedReply | str:
        if "write it" in texts(request):
            return ScriptedReply(calls=[ScriptedCall("look")], usage=USED)
        calls = [ScriptedCall("delegate", {"task": f"write it {number}"}) for number in range(3)]
        return ScriptedReply(calls=calls, usage=USED)

    model, limits = ScriptedModelClient(answer), TurnLimits(max_steps=20)
    async with runtime(model, look, delegates=True, limits=limits, base_limits=limits) as run:
        session = await run.session()
        await run.say(session, "go")
        assert (await until(session, TurnFinishedEvent)).outcome == "failed"
        assert 20 <= len(model.requests) <= 22  # each of the others may have begun one


async def test_rule_that_the_parent_gets_later_binds_its_helper() -> None:
    """A session that narrows what it may do narrows its running helpers with the next call (A19)."""
    look = FunctionTool("look")
    session: Session | None = None

    async def narrow(_arguments: Any, _context: Any) -> str:
        assert session is not None
        await session.set_metadata(policy={"deny": ["look"]})
        return "looked"

    look.function = narrow

    def answer(request: ModelRequest) -> ScriptedReply | str:
        told = sum(message["role"] == "tool" for message in request.messages)
        if "write it" in texts(request):
            return ScriptedReply(calls=[ScriptedCall("look")]) if told < 2 else "Enough."
        return "Done." if told else ScriptedReply(calls=[ScriptedCall("delegate", {"task": "write it"})])

    async with runtime(ScriptedModelClient(answer), look, delegates=True) as run:
        session = await run.session()
        await run.say(session, "go")
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        (child,) = await children(run, session)
        assert [event.synthetic for event in await of_type(child, ToolResultEvent)] == [None, "denied"]
        assert len(look.calls) == 1
        assert await of_type(child, ApprovalRequestEvent) == []


async def test_parked_family_is_handed_over_in_order() -> None:
    """Ending a process while parent and helper wait for a person leaves both parked, and nothing running (B49)."""
    write = FunctionTool("write", spec_fields=ASKS)
    async with await open_manager("memory://") as manager:
        async with runtime(ScriptedModelClient(writing), write, manager=manager, delegates=True) as run:
            session = await begun(run)
            before = session.head.last_seq
            await asyncio.wait_for(run.worker.drain(timeout_s=600), 60)  # there is nothing to wait for
        await session.refresh()
        assert session.head.last_seq == before
        assert await of_type(session, StopRequestedEvent) == []
