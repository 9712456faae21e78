"""Everybody × bus, control lane, approvals and agents: a role is asked there too (A19, A20, A69, C13, C19)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kipu.events.boundary import NoteEvent
from kipu.events.conversation import ToolResultEvent, UserMessageEvent
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.runtime.approvals import ApprovalDesk
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.control import ControlLane
from kipu.runtime.orchestrator import Orchestrator
from kipu.runtime.policy.grants import Grants
from kipu.runtime.policy.policy_rule import parse_rules
from kipu.runtime.policy.tool_policy import PolicyLayer, ToolPolicy
from kipu.stores.host import SystemClock
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.wiring import open_manager
from tests.acceptance.access.people import OWNER, PEOPLE, expected, outcome, shared_session
from tests.acceptance.runtime.bus_place import said
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, runtime


class Place:
    """A session whose turn waits for a person, one message behind it, and everything that takes part."""

    def __init__(self, run: Runtime, session: Session, approval_id: str) -> None:
        self.run = run
        self.id = session.session_id
        self.session = session
        self.approval_id = approval_id
        self.bus = MessageBus(run.manager, approvals=run.desk)
        self.control: ControlLane = self.bus.control
        self.desk = run.desk
        self.agents = run.orchestrator

    @property
    def waiting(self) -> int:
        return self.session.head.waiting[-1]


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    tool = FunctionTool("write", spec_fields={"default_policy": "ask", "has_side_effect": True})
    model = ScriptedModelClient(
        [ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})]), "Done.", "More.", "More."]
    )
    async with await open_manager("memory://") as manager, runtime(model, tool, manager=manager) as run:
        session = await shared_session(manager)
        await session.add_event(UserMessageEvent(content="go", queued=True), principal=Principal("asks", "acme", ROOT))
        run.worker.wake(session.session_id)
        await run.settled()
        (waiting,) = await run.desk.pending(principal=OWNER)
        await session.add_event(UserMessageEvent(content="next", queued=True), principal=OWNER)
        yield Place(run, session, waiting.approval_id)


async def subscribed(there: Place, who: Principal) -> None:
    """Ask for what goes out, without waiting for any."""
    await there.bus.subscribe(there.id, principal=who)


async def watched(there: Place, who: Principal) -> None:
    """Ask for what happens, without waiting for anything."""
    await there.bus.watch(there.id, principal=who)


ROOT = frozenset({"admin"})
INTERRUPT = {"mode": "interrupt"}
ROLLBACK = {"mode": "rollback"}
DROPPING = {"mode": "followup", "cap": 1, "on_full": "drop_oldest"}
Call = Callable[[Place, Principal], Any]
# `key` rows: the key of another tenant is another one.
ROWS: dict[str, tuple[str, Call]] = {
    "bus.send": ("send", lambda p, who: p.bus.send(p.id, said("x"), principal=who)),
    "bus.send: interrupt": ("send", lambda p, who: p.bus.send(p.id, said("x", policy=INTERRUPT), principal=who)),
    "bus.send: rollback": ("rewind", lambda p, who: p.bus.send(p.id, said("x", policy=ROLLBACK), principal=who)),
    "bus.send: drop": ("cancel", lambda p, who: p.bus.send(p.id, said("x", policy=DROPPING), principal=who)),
    "bus.publish: key": ("send", lambda p, who: p.bus.publish(said("x", chat_id="1"), who)),
    "bus.subscribe": ("read", subscribed),
    "bus.watch": ("read", watched),
    "control.stop": ("stop", lambda p, who: p.control.stop(p.id, principal=who)),
    "control.stop: rollback": ("rewind", lambda p, who: p.control.stop(p.id, "rollback", principal=who)),
    "control.queue": ("read", lambda p, who: p.control.queue(p.id, principal=who)),
    "control.cancel": ("cancel", lambda p, who: p.control.cancel(p.id, p.waiting, principal=who)),
    "control.status": ("read", lambda p, who: p.control.status(p.id, principal=who)),
    "control.approve": (
        "decide",
        lambda p, who: p.control.approve(p.approval_id, session_id=p.id, principal=who),
    ),
    "control.approve: edited": (
        "configure",
        lambda p, who: p.control.approve(p.approval_id, arguments={"path": "b"}, session_id=p.id, principal=who),
    ),
    "control.deny": ("decide", lambda p, who: p.control.deny(p.approval_id, session_id=p.id, principal=who)),
    "control.answer": ("decide", lambda p, who: p.control.answer(p.approval_id, "yes", session_id=p.id, principal=who)),
    "desk.answer": ("decide", lambda p, who: p.desk.answer(p.approval_id, "yes", session_id=p.id, principal=who)),
    "desk.approve": ("decide", lambda p, who: p.desk.approve(p.approval_id, session_id=p.id, principal=who)),
    "desk.approve: for good": (
        "configure",
        lambda p, who: p.desk.approve(p.approval_id, scope="session", session_id=p.id, principal=who),
    ),
    "desk.deny": ("decide", lambda p, who: p.desk.deny(p.approval_id, session_id=p.id, principal=who)),
    "desk.pending": ("read", lambda p, who: p.desk.pending(session_id=p.id, principal=who)),
    "agents.switch_to_session": ("send", lambda p, who: p.agents.switch_to_session(p.id, principal=who)),
    "agents.get_or_create_agent_for_session": (
        "send",
        lambda p, who: p.agents.get_or_create_agent_for_session(p.id, principal=who),
    ),
}
HELD = {"bus.subscribe_channel"}  # of no one session; tested below


def test_every_public_name_of_the_runtimes_entries_has_its_row() -> None:
    """A new call of the bus, the control lane, the approvals or the agents says which right it asks for (C19)."""
    kinds = {"bus": MessageBus, "control": ControlLane, "desk": ApprovalDesk}
    names = {f"{short}.{name}" for short, kind in kinds.items() for name in dir(kind) if not name.startswith("_")}
    # The rest of the orchestrator looks after the agents of its process, and is asked by nobody.
    agents = {name: getattr(Orchestrator, name) for name in dir(Orchestrator) if not name.startswith("_")}
    names |= {
        f"agents.{name}"
        for name, method in agents.items()
        if callable(method) and "principal" in inspect.signature(method).parameters
    }
    assert {name.partition(":")[0] for name in ROWS} | HELD == names


@pytest.mark.parametrize("name", ROWS)
async def test_each_may_what_their_role_says(name: str) -> None:
    """Messages, stops, queues and approvals: done, denied, or no such session, as the role says (A20, C13, C19)."""
    verb, call = ROWS[name]
    ended, due = {}, {}
    for person, who in PEOPLE.items():
        elsewhere = name.endswith(": key") and who.tenant != "acme"
        due[person] = "done" if elsewhere else expected(person, verb)
        async with place() as there:
            ended[person] = await outcome(lambda: call(there, who))  # noqa: B023
            if due[person] != "done":
                await there.session.refresh()
                assert there.session.head.parked, person
                assert len(there.session.head.waiting) == 1, person
    assert ended == due


async def test_participant_takes_back_only_messages_of_their_own() -> None:
    """A participant's own waiting message goes, another's stays and says whom to ask (C13, C19)."""
    async with place() as there:
        pat = PEOPLE["participant"]
        receipt = await there.bus.send(there.id, said("mine"), principal=pat)
        assert await outcome(lambda: there.control.cancel(there.id, there.waiting, principal=pat)) == "done"
        assert receipt.seq not in there.session.head.waiting
        assert await outcome(lambda: there.control.cancel(there.id, there.waiting, principal=pat)) == "denied"
        assert len(there.session.head.waiting) == 1


async def test_channel_subscriber_hears_what_is_shared_until_it_is_not() -> None:
    """A subscriber to a channel hears sessions that are shared with them, and none from whom it was taken back (A9, C19)."""
    async with await open_manager("memory://") as manager:
        bus, vic = MessageBus(manager), PEOPLE["viewer"]
        session = await shared_session(manager)
        heard = aiter(bus.subscribe_channel("chat", principal=vic))
        theirs = await manager.get_or_create("chat:2", principal=vic)
        for one, who in ((session, OWNER), (theirs, vic)):
            await refuse(one, who)
        assert [(await anext(heard)).session_id for _ in range(2)] == [session.session_id, theirs.session_id]
        await session.revoke("vic", principal=OWNER)
        for one, who in ((session, OWNER), (theirs, vic)):
            await refuse(one, who)
        assert (await anext(heard)).session_id == theirs.session_id


async def refuse(session: Session, who: Principal) -> None:
    """Let something go out to the channel: that a message was refused."""
    data = {"refusal": "busy", "reply_to": {"channel": "chat", "chat_id": "1"}, "retry_after_s": 1}
    await session.add_event(NoteEvent(kind="kipu.refused", data=data), principal=who)


async def test_role_gives_no_tool() -> None:
    """In a shared session a call is decided for whoever sent the message: the owner's rights are nobody else's (A19, A69, C19)."""
    tool = FunctionTool("write", spec_fields={"default_policy": "allow", "has_side_effect": True})
    call = ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})])
    model = ScriptedModelClient([call, "Done.", call, "Done."])
    rules = parse_rules([{"answer": "deny", "tool": "write", "principal": "pat"}], source="test")
    policy = ToolPolicy([PolicyLayer("organisation", rules)])
    async with (
        await open_manager("memory://") as manager,
        runtime(model, tool, manager=manager, policy=policy) as run,
    ):
        session = await shared_session(manager)
        bus = MessageBus(manager, wake=run.worker.wake)
        for who, ran in ((PEOPLE["participant"], 0), (OWNER, 1)):
            await bus.send(session.session_id, said("write it"), principal=who)
            await run.settled()
            assert len(tool.calls) == ran, who
        events = [event async for event in session.events(principal=OWNER)]
        assert [event.synthetic for event in events if isinstance(event, ToolResultEvent)] == ["denied", None]


async def test_what_one_is_allowed_for_good_is_no_others() -> None:
    """What was allowed for good to one sender of a shared session answers for no other's call, the owner's included (A19, C15)."""
    async with place() as there:
        boss = PEOPLE["tenant admin"]
        await there.desk.approve(there.approval_id, scope="session", principal=boss, session_id=there.id)
        await there.run.settled()
        grants = Grants(there.run.manager, clock=SystemClock())
        for who in (PEOPLE["participant"], PEOPLE["admin"], OWNER):
            assert await grants.matching(there.session, "write", subject="a", principal=who) is None
        asks = Principal("asks", "acme")
        assert await grants.matching(there.session, "write", subject="a", principal=asks) is not None
