"""Messages into sessions: durable, once, in order, to the right history (C4, C5, A5-A16, A36)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kipu.errors import (
    ConflictError,
    InvalidBusyPolicyError,
    InvalidEventError,
    InvalidSessionKeyError,
    KipuError,
)
from kipu.events.conversation import UserMessageEvent
from kipu.ports.store import Appended, EventStore
from kipu.runtime.messages.inbound import InboundEvent
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.runtime.bus_place import Opener, log_of, open_bus, said


async def test_a_message_is_durable_when_publish_returns(open_place: Opener, bus_url: str) -> None:
    """What was acknowledged waits with everything it said, also for another process (C5, A2)."""
    one = await open_place()
    sent = said("hello", source_message_id="m1", thread_id="7", account="bot", metadata={"lang": "qu"}, revision="2")
    receipt = await one.bus.publish(sent)
    assert one.woken == [receipt.session_id]
    two = one if bus_url == "memory://" else await open_place()
    session = await two.manager.open(receipt.session_id)
    assert session.head.waiting == (receipt.seq,)
    assert session.key == "chat:42;account=bot;scope=thread;thread_id=7"
    (stored,) = await log_of(session)
    assert isinstance(stored, UserMessageEvent)
    assert (stored.content, stored.sender_id, stored.channel, stored.source_message_id) == (
        "hello",
        "ada",
        "chat",
        "m1",
    )
    assert stored.queued
    assert stored.busy == {"mode": "followup"}
    assert stored.metadata == {"lang": "qu", "revision": "2"}
    assert stored.reply_to == {
        "channel": "chat", "chat_id": "42", "account": "bot", "thread_id": "7", "message_id": "m1"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, "chat:42"),
        ({"scope": "group"}, "chat:42"),
        ({"scope": "group", "thread_id": "7"}, "chat:42"),
        ({"thread_id": "7"}, "chat:42;scope=thread;thread_id=7"),
        ({"account": "b1"}, "chat:42;account=b1"),
        ({"channel": "cron", "chat_id": "nightly", "scope": "job"}, "cron:nightly"),
        ({"session_key_override": "web:tab;agent=a"}, "web:tab;agent=a"),
    ],
)
async def test_a_message_goes_to_the_session_of_its_key(fields: dict[str, Any], key: str) -> None:
    """The key is channel:chat_id, or thread-level, or the override, never the sender alone (A6, A7, A12-A16)."""
    place = await open_bus("memory://")
    receipt = await place.send("x", **fields)
    assert (await place.manager.open(receipt.session_id)).key == key
    again = await place.send("y", **{"sender_id": "somebody else", **fields})
    assert again.session_id == receipt.session_id
    await place.manager.close()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"channel": ""}, InvalidSessionKeyError),
        ({"chat_id": " "}, InvalidSessionKeyError),
        ({"chat_id": None}, InvalidSessionKeyError),
        ({"sender_id": ""}, InvalidSessionKeyError),
        ({"channel": "a\0b"}, InvalidSessionKeyError),
        ({"scope": "thread"}, InvalidSessionKeyError),
        ({"thread_id": ""}, InvalidSessionKeyError),
        ({"chat_id": "x" * 513}, InvalidSessionKeyError),
        ({"session_key_override": "nothing"}, InvalidSessionKeyError),
        ({"session_key_override": ""}, InvalidSessionKeyError),
        ({"scope": "everywhere"}, InvalidEventError),
        ({"content": "  "}, InvalidEventError),
        ({"content": []}, InvalidEventError),
        ({"content": 7}, InvalidEventError),
        ({"colour": "red"}, InvalidEventError),
        ({"policy": "later"}, InvalidBusyPolicyError),
    ],
)
def test_a_message_without_a_part_is_refused(fields: dict[str, Any], error: type[KipuError]) -> None:
    """No message gets anywhere without a valid channel, chat, sender, key and content (A5, A62, C30)."""
    with pytest.raises(error):
        said(**{"text": "x", **fields})


def test_a_message_needs_every_part() -> None:
    """A part that is left out is refused as one that is empty (A5)."""
    whole = {"channel": "chat", "chat_id": "42", "sender_id": "ada", "content": "x"}
    InboundEvent.model_validate(whole)
    for name in whole:
        with pytest.raises((InvalidSessionKeyError, InvalidEventError)):
            InboundEvent.model_validate({key: value for key, value in whole.items() if key != name})


async def test_a_message_delivered_twice_is_stored_once(open_place: Opener) -> None:
    """The same delivery gives the same place, also after the key got a fresh session; an edit is a new message (C4)."""
    place = await open_place()
    first = await place.send("hi", source_message_id="m1")
    assert not first.duplicate
    await place.manager.new_session("chat:42")
    again = await place.send("hi", source_message_id="m1")
    assert (again.session_id, again.seq, again.duplicate) == (first.session_id, first.seq, True)
    for other in ({"revision": "2"}, {"account": "b2"}, {"source_message_id": "m2"}):
        receipt = await place.send("hi", **{"source_message_id": "m1", **other})
        assert not receipt.duplicate


async def test_two_deliveries_at_once_are_one_message(open_place: Opener, bus_url: str) -> None:
    """Deliveries of one message that race, also through two processes, store it once (C4, A36)."""
    one = await open_place()
    two = one if bus_url == "memory://" else await open_place()
    event = said("hi", source_message_id="m1", policy={"cap": 5})
    receipts = await asyncio.gather(*(place.bus.publish(event) for place in (one, two) * 4))
    assert sum(not receipt.duplicate for receipt in receipts) == 1
    assert len({(receipt.session_id, receipt.seq) for receipt in receipts}) == 1
    session = await one.session()
    assert session.head.waiting == (receipts[0].seq,)


async def test_messages_keep_the_order_of_the_calls(open_place: Opener) -> None:
    """Messages published at once reach each session in the order of the calls, and all sessions get theirs (A36, A39, A40)."""
    place = await open_place(max_inbound=3)
    texts = [(str(chat), f"{number}") for number in range(8) for chat in range(4)]
    await asyncio.gather(
        *(place.send(text, chat_id=chat, policy="collect" if int(text) % 2 else None) for chat, text in texts)
    )
    for chat in range(4):
        events = await log_of(await place.session(f"chat:{chat}"))
        said_texts = [event.content for event in events if isinstance(event, UserMessageEvent)]
        assert said_texts == [str(number) for number in range(8)]


class BusyStore(WrappedStore):
    """A store in which somebody else was always first, once."""

    is_first = True

    async def append(self, session_id: str, *args: Any, **kwargs: Any) -> Appended:
        if kwargs.get("expected_seq") is not None and self.is_first:
            self.is_first = False
            for _ in range(50):
                await asyncio.sleep(0)
            raise ConflictError(session_id=session_id, expected="1", actual="2")
        return await super().append(session_id, *args, **kwargs)


async def test_a_message_that_has_to_look_again_keeps_its_place() -> None:
    """A message whose append finds that somebody else was first is still stored before those published after it (A36, A39)."""
    place = await open_bus("memory://")
    place.manager.store = BusyStore(place.manager.store)
    first, second = await asyncio.gather(place.send("1", policy="collect"), place.send("2"))
    assert first.seq < second.seq
    await place.manager.close()


class GatedStore(WrappedStore):
    """A store whose appends wait until the gate is open, and that says when two of them do."""

    def __init__(self, store: EventStore) -> None:
        super().__init__(store)
        self.gate = asyncio.Event()
        self.two = asyncio.Event()
        self.waiting = 0

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        self.waiting += 1
        if self.waiting == 2:
            self.two.set()
        await self.gate.wait()
        return await super().append(*args, **kwargs)


async def test_too_many_at_once_wait_and_are_not_lost() -> None:
    """Beyond `max_inbound` a caller waits while the store is slow, and is served then (A36, C5)."""
    place = await open_bus("memory://", max_inbound=2)
    store = GatedStore(place.manager.store)
    place.manager.store = store
    tasks = [asyncio.create_task(place.send("x", chat_id=f"{chat}")) for chat in range(4)]
    await store.two.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert store.waiting == 2
    store.gate.set()
    receipts = await asyncio.gather(*tasks)
    assert len({receipt.session_id for receipt in receipts}) == 4
    await place.manager.close()
