"""Questions that the agent asks: the turn waits for a person's words, in the way it waits for a permission."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import ApprovalNotFoundError, InputError
from kipu.events.conversation import ToolResultEvent, ToolStartedEvent
from kipu.events.turn import TurnFinishedEvent, TurnParkedEvent
from kipu.runtime.approvals import PendingApproval
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.policy.policy_rule import parse_rules
from kipu.runtime.policy.tool_policy import PolicyLayer, ToolPolicy
from kipu.runtime.tools.ask_user import AskUser
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, kinds, of_type, runtime, until

ASKS = ScriptedReply(calls=[ScriptedCall("ask_user", {"question": "Tabs or spaces?", "choices": ["tabs", "spaces"]})])


async def asked(run: Runtime) -> PendingApproval:
    session = await run.session()
    await run.say(session, "format it")
    await until(session, TurnParkedEvent)
    (question,) = await run.desk.pending()
    return question


async def test_answer_is_what_the_call_gives_over_a_restart(tmp_path: Path) -> None:
    """A question parks its turn; the answer, given through the control lane of another process, is its result (C13, C15)."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with runtime(ScriptedModelClient([ASKS]), AskUser(), url=url) as run:
        question = await asked(run)
        assert question.question == "Tabs or spaces?"
        assert question.shown["summary"] == "Tabs or spaces? [1 tabs · 2 spaces]"
    model = ScriptedModelClient(["Spaces it is."])
    async with await open_manager(url) as manager, runtime(model, AskUser(), manager=manager) as run:
        session = await manager.open(question.session_id)
        control = ControlLane(manager, wake=run.worker.wake, approvals=run.desk)
        decided = await control.answer(question.approval_id, "spaces, two of them")
        assert (decided.decision, decided.answer, decided.by) == ("answered", "spaces, two of them", "local")
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        (result,) = await of_type(session, ToolResultEvent)
        assert (result.result, result.is_error, result.synthetic) == ("spaces, two of them", False, None)
        assert await of_type(session, ToolStartedEvent) == []
        assert "spaces, two of them" in str(model.requests[0].messages[-1])


async def test_first_answer_counts_and_has_words() -> None:
    """No words are no answer, a second answer is refused, and the log has one (C15)."""
    async with runtime(ScriptedModelClient([ASKS, "So be it."]), AskUser()) as run:
        question = await asked(run)
        with pytest.raises(InputError):
            await run.desk.answer(question.approval_id, "  ")
        await run.desk.answer(question.approval_id, "tabs")
        with pytest.raises(ApprovalNotFoundError):
            await run.desk.answer(question.approval_id, "spaces")
        await run.settled()
        assert (await kinds(await run.session())).count("approval_decision") == 1


async def test_permission_is_not_answered_with_words() -> None:
    """What asks whether a call may run is approved or denied; words would be taken for either (C15)."""
    write = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    async with runtime(ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("write")])]), write) as run:
        permission = await asked(run)
        with pytest.raises(InputError, match="approve or deny"):
            await run.desk.answer(permission.approval_id, "yes please")
        assert permission.question is None
        assert write.calls == []


async def test_question_always_reaches_a_person() -> None:
    """A policy that allows the tool answers no question: only a person does; yes and no are answers too (A19)."""
    policy = ToolPolicy([PolicyLayer("user", parse_rules({"allow": ["*"]}))])
    async with runtime(ScriptedModelClient([ASKS, ASKS, "Well."]), AskUser(), policy=policy) as run:
        session = await run.session()
        first = await asked(run)
        await run.desk.approve(first.approval_id)
        await until(session, TurnParkedEvent, count=2)
        (second,) = await run.desk.pending()
        await run.desk.deny(second.approval_id, reason="not my business")
        assert (await until(session, TurnFinishedEvent)).outcome == "completed"
        yes, no = await of_type(session, ToolResultEvent)
        assert (yes.result, no.synthetic) == ("yes", "denied")
        assert "not my business" in no.result
