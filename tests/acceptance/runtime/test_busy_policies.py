"""The table of busy policies from the outside: a bus, a worker, a model, and what the log and the senders see (C12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import MessageRejectedError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import ToolStartedEvent, UserMessageEvent
from kipu.events.turn import (
    MessageSettledEvent,
    StopRequestedEvent,
    TurnFinishedEvent,
    TurnStartedEvent,
    TurnSteeredEvent,
)
from kipu.manager.session import Session
from kipu.ports.model import ModelRequest
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.outbound import Outbound
from kipu.runtime.messages.reception import Receipt
from kipu.testing.scripted_model import ScriptedCall, ScriptedModelClient, ScriptedReply
from kipu.testing.validators import validate_neutral
from tests.acceptance.runtime.bus_place import said
from tests.acceptance.runtime.fakes import FunctionTool, Runtime, of_type, runtime, until


def said_to(request: ModelRequest) -> list[str]:
    """Return the texts of the user messages that the model was shown."""
    users = [message["content"] for message in request.messages if message["role"] == "user"]
    return ["".join(part["text"] for part in content) for content in users]


def last_said(request: ModelRequest) -> str:
    return said_to(request)[-1]


@dataclass
class BusyPlace:
    """A session whose messages that begin with `work` call a tool that ends when it is told to."""

    run: Runtime
    bus: MessageBus
    model: ScriptedModelClient
    began: asyncio.Event
    end_work: asyncio.Event
    receipts: list[Receipt] = field(default_factory=list)

    async def send(self, text: str, **fields: Any) -> int:
        receipt = await self.bus.publish(said(text, **fields))
        self.receipts.append(receipt)
        return receipt.seq

    async def session(self) -> Session:
        session = await self.run.manager.get_or_create("chat:42")
        await session.refresh()
        return session

    async def working(self, **fields: Any) -> int:
        """Start a turn and return its message's seq once its tool runs."""
        seq = await self.send("work", **fields)
        async with asyncio.timeout(60):
            await self.began.wait()
        return seq

    async def done(self, turns: int, *, ends_work: bool = True) -> list[TurnStartedEvent]:
        """Let the work end, and return the turns once so many have ended."""
        if ends_work:
            self.end_work.set()
        session = await self.session()
        ended = 0
        async with asyncio.timeout(60):
            async for event in session.follow(after=0):
                ended += isinstance(event, TurnFinishedEvent)
                if ended == turns:
                    break
            await self.run.settled()
        for request in self.model.requests:
            assert validate_neutral(list(request.messages)) == []
        return await of_type(session, TurnStartedEvent)


@asynccontextmanager
async def busy_place(url: str = "memory://", **settings: Any) -> AsyncIterator[BusyPlace]:
    began, end_work = asyncio.Event(), asyncio.Event()

    async def work(_arguments: Any, _context: Any) -> str:
        began.set()
        await end_work.wait()
        return "worked"

    def reply(request: ModelRequest) -> ScriptedReply:
        if request.messages[-1]["role"] == "user" and last_said(request).startswith("work"):
            return ScriptedReply("on it", calls=[ScriptedCall("work")])
        return ScriptedReply(f"re: {last_said(request)}")

    model = ScriptedModelClient(reply)
    async with runtime(model, FunctionTool("work", work), url=url) as run:
        bus = MessageBus(run.manager, wake=run.worker.wake, approvals=run.desk, **settings)
        yield BusyPlace(run, bus, model, began, end_work)


@pytest.fixture(params=["memory", "sqlite"])
def busy_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db"


async def test_followup_is_answered_after_the_turn_with_its_results_in_view(busy_url: str) -> None:
    """Messages that come during a turn each get a turn afterwards, in order, and see its results (A1, A39, A43, C12)."""
    async with busy_place(busy_url) as place:
        seqs = [await place.working(), await place.send("second"), await place.send("third")]
        turns = await place.done(3)
        assert [turn.consumes for turn in turns] == [[seq] for seq in seqs]
        assert [turn.policy for turn in turns] == ["followup"] * 3
        second = next(request for request in place.model.requests if last_said(request) == "second")
        assert "worked" in str(second.messages)
        assert len(place.model.requests) == 4


async def test_collect_makes_one_turn_of_one_sender_and_address(busy_url: str) -> None:
    """What one sender sends to one place while a turn runs is one turn; another sender or place has its own (C12)."""
    async with busy_place(busy_url, default_policy={"mode": "collect", "debounce_ms": 0}) as place:
        first = await place.working()
        override = {"session_key_override": "chat:42"}
        a1, b1, a2 = [await place.send(text, sender_id=who) for text, who in (("1", "ada"), ("2", "bo"), ("3", "ada"))]
        elsewhere = await place.send("4", chat_id="7", **override)
        turns = await place.done(4)
        assert [turn.consumes for turn in turns] == [[first], [a1, a2], [b1], [elsewhere]]
        session = await place.session()
        messages = await of_type(session, UserMessageEvent)
        assert [message.content for message in messages] == ["work", "1", "2", "3", "4"]
        collected = place.model.requests[2]
        assert said_to(collected)[-2:] == ["1", "3"]


async def test_collect_starts_by_itself_after_its_quiet_time() -> None:
    """Nobody has to say anything more: once it is quiet the turn begins (C12)."""
    async with busy_place(default_policy={"mode": "collect", "debounce_ms": 30, "max_wait_ms": 60}) as place:
        seq = await place.send("hello")
        assert (await place.done(1))[0].consumes == [seq]


async def test_steer_joins_the_running_turn_at_its_next_boundary(busy_url: str) -> None:
    """A steering message is seen by the running turn behind the result of its call, and gets no other turn (A42, C12)."""
    async with busy_place(busy_url) as place:
        first, steering = await place.working(), await place.send("mind the config", policy="steer")
        turns = await place.done(1)
        assert [turn.consumes for turn in turns] == [[first]]
        session = await place.session()
        assert [event.consumes for event in await of_type(session, TurnSteeredEvent)] == [[steering]]
        shown = place.model.requests[1].messages
        assert [message["role"] for message in shown][-2:] == ["tool", "user"]
        assert last_said(place.model.requests[1]) == "mind the config"
        assert session.head.waiting == ()


async def test_steer_by_somebody_else_is_a_followup_and_the_sender_sees_that(busy_url: str) -> None:
    """Who has less authority than whoever started the turn does not join it: that is said once, and a turn follows (C12)."""
    async with busy_place(busy_url) as place:
        first, theirs = await place.working(), await place.send("delete all", policy="steer", sender_id="eve")
        session = await place.session()
        outbounds = await place.bus.subscribe(session.session_id, after=0)
        turns = await place.done(2)
        assert [turn.consumes for turn in turns] == [[first], [theirs]]
        notes = [note for note in await of_type(session, NoteEvent) if note.kind == "kipu.downgraded"]
        assert [note.data["seqs"] for note in notes] == [[theirs]]
        seen: list[Outbound] = [await anext(outbounds) for _ in range(3)]
        assert [(found.kind, found.answers) for found in seen] == [
            ("downgraded", (theirs,)), ("reply", (first,)), ("reply", (theirs,))
        ]  # fmt: skip


@pytest.mark.parametrize("way", ["parked", "queued"])
async def test_steer_by_somebody_else_is_told_once_however_long_it_waits(busy_url: str, way: str) -> None:
    """A turn that goes on after a decision, and a turn that comes before it, say nothing anew: each thing comes once (C12)."""
    ask = FunctionTool("ask", spec_fields={"default_policy": "ask"})
    calls = [ScriptedReply(calls=[ScriptedCall("ask")])] if way == "parked" else []
    first = asyncio.Event()
    model = ScriptedModelClient([ScriptedReply("on it", calls=[ScriptedCall("work")]), *calls, "one", "two", "three"])
    async with runtime(model, FunctionTool("work", lambda *_: first.wait()), ask, url=busy_url) as run:
        bus = MessageBus(run.manager, wake=run.worker.wake, approvals=run.desk)
        session = await run.manager.open((await bus.publish(said("work"))).session_id)
        await until(session, ToolStartedEvent)
        if way == "queued":
            await bus.publish(said("and then this"))
        theirs = (await bus.publish(said("me too", policy="steer", sender_id="eve"))).seq
        first.set()
        await run.settled()
        for waiting in await run.desk.pending():
            await run.desk.approve(waiting.approval_id)
        await run.settled()
        assert len(await of_type(session, TurnFinishedEvent)) == (2 if way == "parked" else 3)
        notes = [note for note in await of_type(session, NoteEvent) if note.kind == "kipu.downgraded"]
        assert [note.data["seqs"] for note in notes] == [[theirs]]


async def test_steer_that_comes_when_the_turn_has_ended_gets_a_turn(busy_url: str) -> None:
    """A steering message is never lost: without a turn to join it starts one (C12)."""
    async with busy_place(busy_url) as place:
        seq = await place.send("hello", policy="steer")
        turns = await place.done(1)
        assert [(turn.consumes, turn.policy) for turn in turns] == [([seq], "steer")]


async def test_interrupt_ends_the_turn_and_comes_next(busy_url: str) -> None:
    """The running call is closed as cancelled, the turn ends as interrupted, then comes this message, then the others (C12)."""
    async with busy_place(busy_url) as place:
        first, waits = await place.working(), await place.send("later")
        urgent = await place.send("stop, do this", policy="interrupt")
        session = await place.session()
        turns = await place.done(3, ends_work=False)
        assert [turn.consumes for turn in turns] == [[first], [urgent], [waits]]
        finished = await of_type(session, TurnFinishedEvent)
        assert [event.outcome for event in finished] == ["interrupted", "completed", "completed"]
        next_request = next(request for request in place.model.requests if last_said(request) == "stop, do this")
        assert "cancelled" in str(next_request.messages)


async def test_interrupt_of_a_parked_turn_denies_what_it_asked(busy_url: str) -> None:
    """A turn that waits for a person ends when interrupted, and its call does not run (C12, C15)."""
    model = ScriptedModelClient([ScriptedReply(calls=[ScriptedCall("risky")]), "done"])
    risky = FunctionTool("risky", spec_fields={"default_policy": "ask"})
    async with runtime(model, risky, url=busy_url) as run:
        bus = MessageBus(run.manager, wake=run.worker.wake)
        await bus.publish(said("do it"))
        await run.settled()
        receipt = await bus.publish(said("no, this", policy="interrupt"))
        await run.settled()
        session = await run.manager.get_or_create("chat:42")
        await run.settled_soon(session)
        finished = await of_type(session, TurnFinishedEvent)
        assert [event.outcome for event in finished] == ["interrupted", "completed"]
        assert (await of_type(session, TurnStartedEvent))[-1].consumes == [receipt.seq]
        assert risky.calls == []


async def test_rollback_leaves_no_trace_for_the_model_and_all_in_the_log(busy_url: str) -> None:
    """After it the window is what it was before the turn, the undone message is settled, and the log has it all (C12, C11)."""
    async with busy_place(busy_url) as place:
        before = await place.send("hello")
        await place.done(1)
        place.end_work.clear()
        undone = await place.working()
        seq = await place.send("rather this", policy="rollback")
        turns = await place.done(3, ends_work=False)
        assert [turn.consumes for turn in turns] == [[before], [undone], [seq]]
        assert said_to(place.model.requests[-1]) == ["hello", "rather this"]
        assert len(place.model.requests[-1].messages) == 3
        session = await place.session()
        settled = await of_type(session, MessageSettledEvent)
        assert [(event.seqs, event.reason) for event in settled] == [([undone], "superseded")]
        assert "work" in [message.content for message in await of_type(session, UserMessageEvent)]


async def test_reject_is_refused_while_the_turn_runs_and_taken_after_it(busy_url: str) -> None:
    """The sender is told which turn is active and when to try again (C12)."""
    async with busy_place(busy_url) as place:
        first = await place.working()
        session = await place.session()
        with pytest.raises(MessageRejectedError) as caught:
            await place.send("now?", policy="reject")
        assert caught.value.active_turn == session.head.open_turn
        await place.done(1)
        second = await place.send("now?", policy="reject")
        turns = await place.done(2)
        assert [turn.consumes for turn in turns] == [[first], [second]]


async def test_expired_message_gets_no_turn(busy_url: str) -> None:
    """A message that waited longer than it may is settled, the sender sees that, and the next one is answered (C12)."""
    async with busy_place(busy_url) as place:
        first = await place.working()
        stale = await place.send("too late", policy={"ttl_ms": 1})
        fresh = await place.send("in time")
        session = await place.session()
        await asyncio.sleep(0.005)  # longer than it may wait
        turns = await place.done(2)
        assert [turn.consumes for turn in turns] == [[first], [fresh]]
        settled = await of_type(session, MessageSettledEvent)
        assert [(event.seqs, event.reason) for event in settled] == [([stale], "expired")]


async def test_waiting_messages_are_answered_after_a_restart(tmp_path: Path) -> None:
    """What waited under any policy when the process ended is answered by the next one, in order (C5, C12)."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with busy_place(url) as place:
        await place.run.worker.drain(timeout_s=0.0)
        modes = ("followup", "collect", "followup", "followup", "steer")
        seqs = [await place.send(str(number), policy=mode, sender_id=str(number)) for number, mode in enumerate(modes)]
    async with busy_place(url) as place:
        turns = await place.done(len(seqs))
        assert [turn.consumes for turn in turns] == [[seq] for seq in seqs]


async def test_a_late_stop_of_an_earlier_turn_does_not_end_the_next(busy_url: str) -> None:
    """A wish to end a turn that has ended already ends no other one (C13)."""
    async with busy_place(busy_url) as place:
        await place.working()
        session = await place.session()
        events = place.run.manager.store.follow()
        await session.add_event(StopRequestedEvent(turn_id="turn_of_yesterday", mode="interrupt"))
        await session.add_event(NoteEvent(kind="behind it"))
        async with asyncio.timeout(60):
            while (await anext(events)).record.event_type != "note":  # the worker hears it before, or soon
                pass
            for _ in range(20):
                await asyncio.sleep(0)
        await place.done(1)
        assert [event.outcome for event in await of_type(session, TurnFinishedEvent)] == ["completed"]
