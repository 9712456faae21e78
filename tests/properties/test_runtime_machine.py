"""One session and its forks through the whole runtime: whatever people do in whatever order, the log stays in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kipu.errors import ApprovalNotFoundError, ConflictError, InputError, MessageRejectedError, SessionBusyError
from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import TurnStartedEvent, TurnSteeredEvent
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.inbound import InboundEvent
from kipu.session.busy import MODES
from kipu.testing.fakes import FakeClock
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply, results_of, texts_of
from kipu.wiring import open_manager
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, runtime
from tests.acceptance.runtime.soak_check import SoakLog, windows_refused

ROUNDS = 150  # of the loop: more than anything takes that waits for nobody
PLANS = ["", "", "read", "write", "danger", "read,write,danger", "hold", "hold,hold", "read,hold,danger", "think"]
MOST_SESSIONS = 3

policies = st.fixed_dictionaries(
    {"mode": st.sampled_from(MODES)},
    optional={
        "cap": st.integers(1, 3),
        "on_full": st.sampled_from(["reject_new", "drop_oldest", "summarize"]),
        "ttl_ms": st.integers(500, 5_000),
        "debounce_ms": st.integers(0, 2_000),
    },
)
places = st.integers(0, MOST_SESSIONS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), places, policies, st.sampled_from(PLANS), st.sampled_from(["ada", "bo"])),
        st.tuples(st.just("say"), places, policies, st.sampled_from(PLANS), st.just("ada")),
        st.tuples(st.just("stop"), places, st.sampled_from(["stop", "interrupt", "rollback", "rollback_forced"])),
        st.tuples(st.just("decide"), places, st.booleans()),
        st.tuples(st.just("cancel"), places),
        st.tuples(st.just("release")),
        st.tuples(st.just("rewind"), places, st.integers(1, 2)),
        st.tuples(st.just("fork"), places),
        st.tuples(st.just("restart")),
        st.tuples(st.just("wait"), st.integers(100, 3_000)),
    ),
    min_size=1,
    max_size=25,
)


class PeopleRewindLog(SoakLog):
    """A log of which people may undo turns by themselves, or what a fork has added to its parent's: its numbers go on from there."""

    may_rewind = True

    def _check_numbers(self, seqs: Sequence[int]) -> None:
        assert list(seqs) == sorted(set(seqs))


class World:
    """A runtime over a memory store, and what people do with it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.gate = asyncio.Event()
        self.effects: dict[str, int] = {}
        self.refused: list[str] = []
        self.sessions: list[Session] = []
        self._numbers = count(1)
        self._stack = AsyncExitStack()
        self.run: Runtime
        self.bus: MessageBus

    async def begin(self) -> None:
        self.manager = await open_manager("memory://", clock=self.clock, lease_ttl_s=10**6)
        self.sessions = [await self.manager.get_or_create("chat:1")]
        await self.start_worker()

    async def start_worker(self) -> None:
        model = ScriptedModelClient(self._answer)
        self.run = await self._stack.enter_async_context(runtime(model, *self._tools(), manager=self.manager))
        self.bus = MessageBus(self.manager, wake=self.run.worker.wake, approvals=self.run.desk)

    async def restart(self) -> None:
        """End the worker as a process does that is told to, and begin another."""
        await self._stack.aclose()
        await self.start_worker()

    async def end(self) -> None:
        await self._stack.aclose()
        await self.manager.close()

    # ---- the model and its tools ----

    async def _answer(self, request: ModelRequest) -> ScriptedReply:
        from kipu.testing.validators import validate

        self.refused += [str(entry) for entry in validate("neutral", {"messages": request.messages})]
        plan = (texts_of(request) or [""])[-1].rpartition("plan=")[2].split(",")
        if "think" in plan:
            return ScriptedReply("I thought about it for a while.", before=self.gate.wait)
        if results_of(request):
            return ScriptedReply("Done, and that is all there is to say.")
        return ScriptedReply(
            "Well then.", calls=[ScriptedCall(name, {"n": next(self._numbers)}) for name in plan if name]
        )

    def _tools(self) -> list[FunctionTool]:
        def effect(name: str) -> Any:
            async def run(_arguments: Any, context: Any) -> str:
                self.effects[context.call_id] = self.effects.get(context.call_id, 0) + 1
                if name == "hold":
                    await self.gate.wait()
                return f"{name} done"

            return run

        return [
            FunctionTool("read", effect("read"), {"is_idempotent": True}),
            FunctionTool("write", effect("write"), {"has_side_effect": True}),
            FunctionTool("hold", effect("hold"), {"has_side_effect": True, "is_external": True}),
            FunctionTool("danger", effect("danger"), {"has_side_effect": True, "default_policy": "ask"}),
        ]

    # ---- what people do ----

    def at(self, place: int) -> Session:
        return self.sessions[place % len(self.sessions)]

    async def say(self, place: int, policy: dict[str, Any], plan: str, sender: str) -> None:
        session = self.at(place)
        event = InboundEvent(
            channel="chat",
            chat_id="1",
            sender_id=sender,
            content=f"message plan={plan}",
            policy=policy,
            session_key_override=session.key if place % len(self.sessions) == 0 else f"chat:fork-{session.session_id}",
        )
        with suppress(MessageRejectedError):
            await self.bus.publish(event)

    async def stop(self, place: int, mode: Any) -> None:
        await self.bus.control.stop(self.at(place).session_id, mode)

    async def decide(self, place: int, approves: bool) -> None:
        session_id = self.at(place).session_id
        for approval in (await self.run.desk.pending(session_id=session_id))[:1]:
            decide = self.run.desk.approve if approves else self.run.desk.deny
            with suppress(ApprovalNotFoundError):  # it has expired
                await decide(approval.approval_id, session_id=session_id)

    async def cancel(self, place: int) -> None:
        for queued in (await self.bus.control.queue(self.at(place).session_id))[:1]:
            with suppress(ConflictError):
                await self.bus.control.cancel(self.at(place).session_id, queued.seq)

    async def release(self) -> None:
        self.gate.set()
        await self.settle()
        self.gate.clear()

    async def rewind(self, place: int, turns: int) -> None:
        session = self.at(place)
        if not session.lock.in_use:
            with suppress(InputError, SessionBusyError):  # a turn is open, or there are not so many
                await session.rewind(turns=turns)

    async def fork(self, place: int) -> None:
        if len(self.sessions) < MOST_SESSIONS:
            child = await self.at(place).fork()
            await self.manager.bind_key(f"chat:fork-{child.session_id}", child.session_id)
            self.sessions.append(child)

    async def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)
        await self.run.worker.sweep()

    # ---- what must hold ----

    async def settle(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(0)

    async def check(self) -> None:
        assert self.refused == []
        for session in self.sessions:
            await session.refresh()
            own = [event async for event in session.events(after=session.head.base_seq)]
            log = PeopleRewindLog(_of_own(own), waiting=session.head.waiting, open_turn=session.head.open_turn)
            log.check_effects(self.effects)
            assert log.problems == []
            assert await windows_refused(session) == []

    async def finish(self) -> None:
        """Let everything come to its end, and see that it does."""
        for _ in range(30):
            await self.release()
            await self.wait(11_000)
            for place in range(len(self.sessions)):
                await self.decide(place, True)
            await self.settle()
        await self.check()
        for session in self.sessions:
            assert (session.head.waiting, session.head.open_turn) == ((), None)


def _of_own(events: Sequence[Any]) -> list[Any]:
    """Return a fork's own events, without what it says of messages that only its parent has."""
    own = {event.seq for event in events if isinstance(event, UserMessageEvent)}
    return [
        event
        for event in events
        if not isinstance(event, TurnStartedEvent | TurnSteeredEvent) or set(event.consumes) <= own
    ]


async def play(script: Sequence[tuple[Any, ...]]) -> None:
    world = World()
    await world.begin()
    try:
        for name, *arguments in script:
            await getattr(world, name)(*arguments)
            await world.settle()
            await world.check()
        await world.finish()
    finally:
        world.gate.set()
        await world.end()


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("kipu").setLevel(logging.ERROR)


@given(steps)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_runtime_keeps_every_log_in_order_whatever_people_do(script: list[tuple[Any, ...]]) -> None:
    """After each step windows are valid, one turn is open at most, each message is in one place (A2, A39, C7, C12, C15)."""
    asyncio.run(play(script))


def test_runtime_settles_what_was_undone_twice_once() -> None:
    """A message whose turn was rolled back is not settled once more when people rewind past it (C5, C11)."""
    rollback = {"mode": "rollback"}
    script = [
        ("say", 0, {"mode": "followup"}, "", "bo"),
        ("say", 0, {"mode": "followup"}, "danger", "ada"),
        ("say", 0, rollback, "", "ada"),
        ("rewind", 0, 2),
    ]
    asyncio.run(play(script))


@pytest.mark.long
@given(steps)
@settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_runtime_keeps_thousands_of_logs_in_order_whatever_people_do(script: list[tuple[Any, ...]]) -> None:
    """As the short one, five thousand times (A2, A39, C7, C12, C15)."""
    asyncio.run(play(script))
