"""Answers, and what became of messages without one, reach whoever listens, with the address they go to (A9, C12, C30)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest

from kipu.errors import MessageRejectedError, SessionNotFoundError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent
from kipu.events.turn import TurnSteeredEvent
from kipu.ports.principal import Principal
from kipu.runtime.messages.outbound import Outbound
from tests.acceptance.runtime.bus_place import Opener, answer, said


async def take(outbounds: AsyncIterator[Outbound], count: int) -> list[Outbound]:
    """Return the next few, and stop listening."""
    found: list[Outbound] = []
    async with aclosing(cast("AsyncGenerator[Outbound, None]", outbounds)), asyncio.timeout(60):
        async for outbound in outbounds:
            found.append(outbound)
            if len(found) == count:
                break
    return found


async def test_every_subscriber_of_a_session_sees_each_answer_once(open_place: Opener) -> None:
    """Several listeners of one session each get its answers, and one that leaves takes nothing from the others (A9)."""
    place = await open_place()
    session = await place.session()
    listeners = [await place.bus.subscribe(session.session_id) for _ in range(3)]
    leaves = asyncio.create_task(take(listeners[0], 1))
    stay = [asyncio.create_task(take(listener, 2)) for listener in listeners[1:]]
    seqs: list[int] = []
    for text in ("one", "two"):
        seqs.append((await place.send(text, source_message_id=text)).seq)
        await answer(session, f"to {text}")
    assert [outbound.content for outbound in await leaves] == ["to one"]
    for task in stay:
        assert [(found.kind, found.content) for found in await task] == [("reply", "to one"), ("reply", "to two")]
    last = (await stay[0])[-1]
    assert last.answers == (seqs[1],)
    assert last.address == {"channel": "chat", "chat_id": "42", "message_id": "two"}


async def test_a_subscriber_goes_on_where_it_left(open_place: Opener) -> None:
    """Going on after a cursor shows what came later, each once, also of a turn that had begun before it (A9, C30)."""
    place = await open_place()
    session = await place.session()
    await place.send("one")
    await answer(session, "1")
    (first,) = await take(await place.bus.subscribe(session.session_id, after=0), 1)
    await place.send("two")
    async with session.turn(take=1) as turn:
        await turn.add_event(AgentMessageEvent(content="let me look"))
        call = ToolCallEvent(tool_name="look", tool_call_id="c1")
        middle = await turn.add_events([call, ToolResultEvent(tool_call_id="c1", result="seen")])
        await turn.add_event(AgentMessageEvent(content="2"))
    (second,) = await take(await place.bus.subscribe(session.session_id, after=first.cursor), 1)
    (from_middle,) = await take(await place.bus.subscribe(session.session_id, after=middle[-1].seq), 1)
    assert second == from_middle
    assert (second.content, second.turn_id) == ("2", turn.id)


async def test_an_answer_goes_to_every_address_it_answers(open_place: Opener) -> None:
    """Messages that joined a turn from elsewhere are answered where they came from, the newest of each place quoted (C12)."""
    place = await open_place()
    override = {"session_key_override": "shared:1"}
    seqs = [
        (await place.send(text, chat_id=chat, source_message_id=text, **override)).seq
        for text, chat in (("a", "1"), ("b", "2"), ("c", "1"))
    ]
    session = await place.session("shared:1")
    async with session.turn(consumes=seqs[:1]) as turn:
        await turn.add_event(TurnSteeredEvent(turn_id=turn.id, consumes=seqs[1:]))
        await turn.add_event(AgentMessageEvent(content="for all"))
    found = await take(await place.bus.subscribe(session.session_id, after=0), 2)
    assert [(outbound.address["chat_id"], outbound.address["message_id"]) for outbound in found] == [
        ("1", "c"), ("2", "b")
    ]  # fmt: skip
    assert [outbound.answers for outbound in found] == [(seqs[0], seqs[2]), (seqs[1],)]


async def test_a_sender_sees_what_became_of_a_message_without_a_turn(open_place: Opener) -> None:
    """Drops, refusals, downgrades, cancellations and turns without an answer come with their reason and address (C12)."""
    place = await open_place(default_policy={"cap": 1, "on_full": "drop_oldest"})
    first = await place.send("1")
    second = await place.send("2")
    with pytest.raises(MessageRejectedError):
        await place.send("no", policy="reject", chat_id="42")
    session = await place.session()
    await session.add_event(NoteEvent(kind="kipu.downgraded", data={"seqs": [second.seq], "turn_id": "t"}))
    with pytest.raises(ZeroDivisionError):
        async with session.turn(take=1):
            raise ZeroDivisionError
    third = await place.send("3")
    await place.bus.control.cancel(session.session_id, third.seq)
    found = await take(await place.bus.subscribe(session.session_id, after=0), 5)
    assert [(outbound.kind, outbound.reason, outbound.answers) for outbound in found] == [
        ("settled", "dropped", (first.seq,)),
        ("refused", "busy", ()),
        ("downgraded", "followup", (second.seq,)),
        ("ended", "failed", (second.seq,)),
        ("settled", "cancelled", (third.seq,)),
    ]
    assert {outbound.address["chat_id"] for outbound in found} == {"42"}
    assert "ZeroDivisionError" in str(found[3].detail)


async def test_a_turn_can_run_without_publishing_its_answer(open_place: Opener) -> None:
    """A message that asks for no publication is answered in the log alone (C30)."""
    place = await open_place()
    session = await place.session()
    await place.send("quietly", metadata={"publish": False})
    await answer(session, "only for the log")
    await place.send("aloud")
    await answer(session, "for all")
    (found,) = await take(await place.bus.subscribe(session.session_id, after=0), 1)
    assert found.content == "for all"


async def test_a_channel_sees_its_own_sessions_and_nothing_else(open_place: Opener) -> None:
    """A channel's listener gets what goes out to it, of every session its principal may read, from the call on (A8, C19)."""
    place = await open_place()
    await place.send("before")
    await answer(await place.session(), "too early")
    listener = place.bus.subscribe_channel("chat")
    ada = Principal("ada", "acme")
    theirs = await place.bus.publish(said("x"), ada)
    session = await place.manager.open(theirs.session_id, principal=ada)
    async with session.turn(take=1, principal=ada) as turn:
        await turn.add_event(AgentMessageEvent(content="not yours"))
    for channel, chat in (("web", "1"), ("chat", "1"), ("chat", "2")):
        await place.send("x", channel=channel, chat_id=chat)
        await answer(await place.session(f"{channel}:{chat}"), f"{channel} {chat}")
    # Only within a session is there an order.
    assert {str(found.content) for found in await take(listener, 2)} == {"chat 1", "chat 2"}


async def test_a_session_is_heard_only_by_those_who_may(open_place: Opener) -> None:
    """Nobody subscribes to a session that does not exist for them (A20, C19)."""
    place = await open_place()
    session = await place.session()
    with pytest.raises(SessionNotFoundError):
        await place.bus.subscribe(session.session_id, principal=Principal("eve"))
