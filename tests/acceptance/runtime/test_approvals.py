"""Approvals: asked before a call, decided by a person, remembered over restarts, run once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import AccessDeniedError, ApprovalNotFoundError, InputError, SessionNotFoundError
from kipu.events.conversation import ToolResultEvent, ToolStartedEvent
from kipu.events.turn import ApprovalDecisionEvent, ApprovalRequestEvent, StopRequestedEvent, TurnFinishedEvent
from kipu.ports.principal import Principal
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators.neutral import validate_neutral
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, kinds, of_type, runtime, until


def asking(name: str = "write") -> FunctionTool:
    return FunctionTool(name, spec_fields={"default_policy": "ask", "has_side_effect": True})


def script(*calls: ScriptedCall) -> ScriptedModelClient:
    return ScriptedModelClient([ScriptedReply(calls=list(calls)), "Done.", "Again."])


async def parked(run: Runtime, text: str = "go") -> Any:
    session = await run.session()
    await run.say(session, text)
    await run.settled()
    assert session.head.parked
    return session


async def test_call_that_needs_a_person_parks_the_turn_and_holds_nothing() -> None:
    """The request is appended before it is shown, then the turn parks: no task, no lease is held (C15, A71)."""
    tool = asking()
    async with runtime(script(ScriptedCall("write", {"path": "a.txt"})), tool) as run:
        session = await parked(run)
        assert (await kinds(session))[-2:] == ["approval_request", "turn_parked"]
        assert session.head.lease_owner is None
        assert run.worker.running == frozenset()
        assert tool.calls == []
        (waiting,) = await run.desk.pending()
        assert waiting.tool_name == "write"
        assert waiting.shown["summary"] == "write {'path': 'a.txt'}"
        assert waiting.shown["subject"] == "a.txt"


async def test_approved_call_runs_once_and_the_turn_goes_on() -> None:
    """After the approval the call runs once, and the model sees its result (C15)."""
    tool = asking()
    async with runtime(script(ScriptedCall("write", {"path": "a"})), tool) as run:
        session = await parked(run)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled()
        assert tool.calls == [{"path": "a"}]
        assert len(await of_type(session, ToolStartedEvent)) == 1
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
        assert await run.desk.pending() == []


async def test_denied_call_never_runs_and_the_model_is_told_why() -> None:
    """A denial is a result with its reason; the tool does not run (A42, C15)."""
    tool = asking()
    async with runtime(script(ScriptedCall("write")), tool) as run:
        session = await parked(run)
        (waiting,) = await run.desk.pending()
        await run.desk.deny(waiting.approval_id, reason="not on a Friday")
        await run.settled()
        (result,) = await of_type(session, ToolResultEvent)
        assert (result.synthetic, result.is_error) == ("denied", True)
        assert "not on a Friday" in result.result
        assert tool.calls == []


async def test_decision_survives_a_restart(tmp_path: Path) -> None:
    """A question asked by one process is decided in a second and its call run by a third (C15, A71, B61)."""
    url = f"sqlite:////{tmp_path}/s.db"
    async with runtime(script(ScriptedCall("write", {"path": "a"})), asking(), url=url) as run:
        session_id = (await parked(run)).session_id
    async with await open_manager(url) as manager:
        from kipu.runtime.approvals import ApprovalDesk

        desk = ApprovalDesk(manager)
        (waiting,) = await desk.pending()
        await desk.approve(waiting.approval_id)
    tool = asking()
    async with runtime(ScriptedModelClient(["Done."]), tool, url=url) as run:
        session = await run.manager.open(session_id)
        await until(session, TurnFinishedEvent)
        assert tool.calls == [{"path": "a"}]


async def test_changed_arguments_are_what_runs() -> None:
    """A person may approve with other arguments; the call runs with those, and the model is told."""
    tool = asking()
    async with runtime(script(ScriptedCall("write", {"path": "a"})), tool) as run:
        session = await parked(run)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id, arguments={"path": "b"})
        await run.settled()
        assert tool.calls == [{"path": "b"}]
        (result,) = await of_type(session, ToolResultEvent)
        assert "'path': 'b'" in result.result


async def test_first_decision_is_the_one_that_counts() -> None:
    """Of two who decide at the same time one is told that it was decided already (C15)."""
    async with runtime(script(ScriptedCall("write")), asking(), max_turns=0) as run:
        run.worker._max_turns = 1
        session = await parked(run)
        run.worker._max_turns = 0  # nobody goes on with the turn while both decide
        (waiting,) = await run.desk.pending()
        outcomes = await asyncio.gather(
            run.desk.approve(waiting.approval_id), run.desk.deny(waiting.approval_id), return_exceptions=True
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == [
            "ApprovalDecisionEvent",
            "ApprovalNotFoundError",
        ]
        assert len(await of_type(session, ApprovalDecisionEvent)) == 1


async def test_unanswered_question_expires() -> None:
    """After its time a question is answered by nobody: the call is denied as expired, and the turn ends (C15)."""
    tool = asking()
    async with runtime(script(ScriptedCall("write")), tool, approval_ttl_s=0.15) as run:
        session = await run.session()
        await run.say(session, "go")
        await until(session, TurnFinishedEvent)
        (result,) = await of_type(session, ToolResultEvent)
        assert (result.error_info, result.synthetic) == ("expired", "denied")
        assert tool.calls == []


async def test_other_calls_of_the_answer_run_while_one_waits() -> None:
    """A call that needs nobody has run when the turn parks for another (A72)."""
    tool, look = asking(), FunctionTool("look")
    async with runtime(script(ScriptedCall("write"), ScriptedCall("look")), tool, look) as run:
        session = await parked(run)
        assert len(look.calls) == 1
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled()
        assert len(look.calls) == len(tool.calls) == 1
        assert validate_neutral(list(run.model.requests[-1].messages)) == []
        assert session.head.open_turn is None


@pytest.mark.parametrize("scope", ["session", "user"])
async def test_always_is_not_asked_again(scope: Any) -> None:
    """What was allowed for good runs without a question the next time, where the scope reaches (C15)."""
    tool = asking()
    model = ScriptedModelClient(
        [
            ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})]),
            "Done.",
            ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})]),
            "Done.",
        ]
    )
    async with runtime(model, tool) as run:
        session = await parked(run)
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id, scope=scope)
        await run.settled()
        other = session if scope == "session" else await run.session("test:2")
        await run.say(other, "again")
        await run.settled()
        assert len(tool.calls) == 2
        assert len(await of_type(other, ApprovalRequestEvent)) == (1 if scope == "session" else 0)


async def test_stop_of_a_parked_turn_denies_what_was_asked() -> None:
    """A stop ends a parked turn: its questions are denied, its calls cancelled (C13)."""
    tool = asking()
    async with runtime(script(ScriptedCall("write")), tool) as run:
        session = await parked(run)
        await session.add_event(StopRequestedEvent(turn_id=session.head.open_turn or ""))
        await run.settled_soon(session)
        (result,) = await of_type(session, ToolResultEvent)
        assert result.synthetic == "cancelled"
        assert (await of_type(session, ApprovalDecisionEvent))[0].decision == "denied"
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["cancelled"]
        assert tool.calls == []


async def test_message_that_comes_while_parked_waits_for_its_turn() -> None:
    """A parked turn counts as running: the next message is answered after it, and nothing spins meanwhile (A39)."""
    async with runtime(script(ScriptedCall("write")), asking()) as run:
        session = await parked(run)
        seq = await run.say(session, "and this?")
        await run.settled()
        assert session.head.waiting == (seq,)
        count = session.head.last_seq
        await run.worker.sweep()
        await run.settled()
        await session.refresh()
        assert session.head.last_seq == count
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled()
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"] * 2


async def test_strangers_and_requesters_do_not_decide() -> None:
    """Who may not see the session finds no approval; who asked does not approve themselves (A20, C15, C19)."""
    async with await open_manager("memory://") as manager:
        ada = Principal("ada", "acme")
        async with runtime(script(ScriptedCall("write")), asking(), manager=manager) as run:
            session = await manager.get_or_create("test:1", principal=ada)
            from kipu.events.conversation import UserMessageEvent

            await session.add_event(UserMessageEvent(content="go", queued=True), principal=ada)
            run.worker.wake(session.session_id)
            await run.settled()
            (waiting,) = await run.desk.pending(principal=ada)
            with pytest.raises(AccessDeniedError):
                await run.desk.approve(waiting.approval_id, principal=ada)
            with pytest.raises(ApprovalNotFoundError):
                await run.desk.approve(waiting.approval_id, principal=Principal("eve", "acme"))
            with pytest.raises(SessionNotFoundError):
                await run.desk.deny(
                    waiting.approval_id, session_id=session.session_id, principal=Principal("eve", "other")
                )
            boss = Principal("boss", "acme", frozenset({"admin"}))
            await run.desk.approve(waiting.approval_id, principal=boss)
            await run.settled()
            assert session.head.open_turn is None


async def test_policy_that_has_become_stricter_is_asked_again_on_resume() -> None:
    """An approval does not outlive a policy that forbids the call by now (C15, A19)."""
    tool = asking()
    async with runtime(script(ScriptedCall("write")), tool) as run:
        session = await parked(run)
        await session.set_metadata(policy={"deny": ["write"]})
        (waiting,) = await run.desk.pending()
        await run.desk.approve(waiting.approval_id)
        await run.settled()
        (result,) = await of_type(session, ToolResultEvent)
        assert result.synthetic == "denied"
        assert tool.calls == []


async def test_always_with_changed_arguments_is_refused() -> None:
    """What is allowed for good is what was asked: changed arguments are for once only."""
    async with runtime(script(ScriptedCall("write")), asking()) as run:
        await parked(run)
        (waiting,) = await run.desk.pending()
        with pytest.raises(InputError):
            await run.desk.approve(waiting.approval_id, scope="session", arguments={"path": "x"})


async def test_questions_of_calls_made_together_stand_in_the_order_of_the_calls() -> None:
    """What waits is listed oldest first, calls of one answer as the model made them, within a millisecond too (A35)."""
    names = [f"write_{number}" for number in range(8)]
    async with runtime(script(*(ScriptedCall(name) for name in names)), *map(asking, names)) as run:
        await parked(run)
        assert [entry.tool_name for entry in await run.desk.pending()] == names
