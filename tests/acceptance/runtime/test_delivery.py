"""Answers go out through their channels: once, in order, again after failures, and after a crash (C5, C30)."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import InputError
from kipu.events.conversation import AgentMessageEvent
from kipu.events.turn import DeliveryEvent
from kipu.manager.session import Session
from kipu.runtime.messages.delivery import Delivery, DeliveryLimits
from kipu.runtime.messages.outbound import Outbound
from tests.acceptance.runtime.bus_place import BusPlace, Opener, answer, log_of, open_bus

QUICK = DeliveryLimits(first_wait_s=0.001, longest_wait_s=0.002, tries=4, sweep_s=0.05)
WITH_CHAT: dict[str, Any] = {"delivering": ("chat",)}


class Platform:
    """Where answers go: it remembers what it got, and fails as often as it is told to."""

    def __init__(self, *, failures: int = 0, error: Callable[[], Exception] = lambda: OSError("no route")) -> None:
        self.got: list[Outbound] = []
        self.tried = 0
        self.failures = failures
        self.error = error
        self.news = asyncio.Event()

    async def send(self, outbound: Outbound) -> str | None:
        self.tried += 1
        if self.tried <= self.failures:
            raise self.error()
        self.got.append(outbound)
        self.news.set()
        return f"p{len(self.got)}"

    async def until(self, count: int) -> list[Outbound]:
        """Return what it got once that is `count` things."""
        async with asyncio.timeout(60):
            while len(self.got) < count:
                self.news.clear()
                await self.news.wait()
        return self.got

    @property
    def texts(self) -> list[Any]:
        return [outbound.content for outbound in self.got]


async def deliveries(session: Session) -> list[DeliveryEvent]:
    """Return the records of what was sent or given up; claims come before them."""
    found = [event for event in await log_of(session) if isinstance(event, DeliveryEvent)]
    return [event for event in found if event.status in ("sent", "failed")]


async def owes_nothing(session: Session) -> None:
    """Return once the session owes no answer any more."""
    async with asyncio.timeout(60):
        async for _event in session.follow(after=0):
            await session.refresh()
            if session.head.waiting == () and session.head.undelivered == () and session.head.open_turn is None:
                return


async def test_an_answer_goes_out_once_and_that_is_recorded(open_place: Opener) -> None:
    """The answer reaches the platform with its address, and the log has the platform's own id of it (C30, EV-16)."""
    place, platform = await open_place(**WITH_CHAT), Platform()
    async with Delivery(place.manager, {"chat": platform.send}) as delivery:
        receipt = await place.send("hi", source_message_id="m1")
        session = await place.session()
        assert session.head.undelivered == (receipt.seq,)
        seq = await answer(session, "hello")
        await platform.until(1)
        await owes_nothing(session)
        await delivery.sweep()
        await delivery.settle()
    (sent,) = platform.got
    assert (sent.kind, sent.content, sent.seq) == ("reply", "hello", seq)
    (recorded,) = await deliveries(session)
    assert (recorded.message_seq, recorded.status, recorded.platform_message_id) == (seq, "sent", "p1")
    assert recorded.address == {"channel": "chat", "chat_id": "42", "message_id": "m1"}


async def test_what_a_dead_process_left_goes_out_after_it(open_place: Opener, bus_url: str) -> None:
    """Answers that were logged while nothing delivered go out at the next start, and only then (C5, C30)."""
    place = await open_place(**WITH_CHAT)
    for chat in ("1", "2"):
        await place.send("hi", chat_id=chat)
        await answer(await place.session(f"chat:{chat}"), f"to {chat}")
    await place.send("still waiting", chat_id="3")
    if bus_url != "memory://":
        await place.manager.close()
        place = await open_place(**WITH_CHAT)
    platform = Platform()
    async with Delivery(place.manager, {"chat": platform.send}) as delivery:
        await delivery.settle()
    assert sorted(platform.texts) == ["to 1", "to 2"]
    async with Delivery(place.manager, {"chat": platform.send}) as delivery:
        await delivery.settle()
        assert len(platform.got) == 2
        await answer(await place.session("chat:3"), "to 3")
        await platform.until(3)


async def test_an_answer_of_another_process_goes_out(tmp_path: Path) -> None:
    """The process with the connection sends what workers elsewhere answered (C30, C5)."""
    url = f"sqlite:///{tmp_path}/s.db"
    gateway, worker = await open_bus(url, **WITH_CHAT), await open_bus(url)
    platform = Platform()
    async with Delivery(gateway.manager, {"chat": platform.send}):
        await gateway.send("hi")
        await answer(await worker.session(), "from afar")
        assert [sent.content for sent in await platform.until(1)] == ["from afar"]
    await worker.manager.close()
    await gateway.manager.close()


async def test_sending_is_tried_again_and_in_order(open_place: Opener) -> None:
    """What a platform refuses for now is sent later, before anything newer to the same address (C30)."""
    place, platform = await open_place(**WITH_CHAT), Platform(failures=3)
    for text in ("1", "2"):
        await place.send(text)
        await answer(await place.session(), f"to {text}")
    async with Delivery(place.manager, {"chat": platform.send}, limits=QUICK):
        await platform.until(2)
        await owes_nothing(await place.session())
    assert platform.texts == ["to 1", "to 2"]
    assert platform.tried == 5


@pytest.mark.parametrize(
    ("error", "tries"), [(lambda: InputError(reason="the chat is gone"), 1), (lambda: OSError("down"), 4)]
)
async def test_an_answer_that_cannot_be_sent_is_given_up_and_recorded(
    open_place: Opener, error: Callable[[], Exception], tries: int
) -> None:
    """What can never be sent is not tried again, anything else a bounded number of times; both are in the log (C30)."""
    place, platform = await open_place(**WITH_CHAT), Platform(failures=99, error=error)
    await place.send("hi")
    session = await place.session()
    await answer(session, "lost")
    async with Delivery(place.manager, {"chat": platform.send}, limits=QUICK):
        await owes_nothing(session)
    assert platform.tried == tries
    (recorded,) = await deliveries(session)
    assert (recorded.status, recorded.platform_message_id) == ("failed", None)


async def test_one_answer_for_collected_messages_and_one_for_each_address(open_place: Opener) -> None:
    """A turn over several messages of one place is answered there once (C12)."""
    place, platform = await open_place(**WITH_CHAT), Platform()
    override = {"session_key_override": "shared:1"}
    seqs = [(await place.send("x", chat_id=chat, **override)).seq for chat in ("1", "1", "2")]
    session = await place.session("shared:1")
    async with Delivery(place.manager, {"chat": platform.send}):
        await answer(session, "for both", consumes=seqs)
        await owes_nothing(session)
    assert [(sent.address["chat_id"], sent.answers) for sent in platform.got] == [
        ("1", tuple(seqs[:2])), ("2", (seqs[2],))
    ]  # fmt: skip


async def test_a_sender_is_told_of_what_gets_no_answer(open_place: Opener) -> None:
    """A dropped, a cancelled and a failed message are told to the platform like answers, with the reason (C12)."""
    place, platform = await open_place(**WITH_CHAT, default_policy={"cap": 1, "on_full": "drop_oldest"}), Platform()
    first, second = await place.send("1"), await place.send("2")
    session = await place.session()
    with pytest.raises(ZeroDivisionError):
        async with session.turn(take=1):
            raise ZeroDivisionError
    third = await place.send("3")
    await place.bus.control.cancel(session.session_id, third.seq)
    async with Delivery(place.manager, {"chat": platform.send}):
        await owes_nothing(session)
    assert [(sent.kind, sent.reason, sent.answers) for sent in platform.got] == [
        ("settled", "dropped", (first.seq,)),
        ("ended", "failed", (second.seq,)),
        ("settled", "cancelled", (third.seq,)),
    ]


async def test_an_undone_answer_is_not_sent(open_place: Opener) -> None:
    """Where a turn was rolled back before its answer went out, the sender is told that, and not the answer (C12)."""
    place, platform = await open_place(**WITH_CHAT), Platform()
    await place.send("1")
    session = await place.session()
    await answer(session, "undone")
    await session.rewind(turns=1)
    async with Delivery(place.manager, {"chat": platform.send}):
        await owes_nothing(session)
    assert [(sent.kind, sent.reason) for sent in platform.got] == [("settled", "superseded")]


async def test_only_what_its_channel_delivers_is_sent(open_place: Opener) -> None:
    """Nothing goes out for a message that asks for no publication, or whose channel is none of the bus's (C30)."""
    place, platform = await open_place(**WITH_CHAT), Platform()
    await place.send("quiet", metadata={"publish": False})
    await place.send("elsewhere", channel="web")
    for key in ("chat:42", "web:42"):
        session = await place.session(key)
        assert session.head.undelivered == ()
        await answer(session, "not sent")
    async with Delivery(place.manager, {"chat": platform.send, "web": platform.send}) as delivery:
        assert await delivery.sweep() == 0
        await delivery.settle()
    assert platform.got == []


async def test_a_slow_platform_delays_no_other(open_place: Opener) -> None:
    """While one channel hangs on every send, another's answers go out (A41, C30)."""
    place, platform = await open_place(delivering=("chat", "slow")), Platform()

    async def hang(_outbound: Outbound) -> None:
        await asyncio.Event().wait()

    for chat in range(3):
        for channel in ("slow", "chat"):
            await place.send("x", channel=channel, chat_id=str(chat))
            await answer(await place.session(f"{channel}:{chat}"), "y")
    limits = DeliveryLimits(at_once=1, grace_s=0.0)
    async with Delivery(place.manager, {"chat": platform.send, "slow": hang}, limits=limits):
        assert len(await platform.until(3)) == 3


async def test_a_send_that_takes_too_long_is_tried_again(open_place: Opener) -> None:
    """A platform that never answers is given up after a time and asked again (C30)."""
    place, platform = await open_place(**WITH_CHAT), Platform()
    hung: list[Outbound] = []

    async def hang_once(outbound: Outbound) -> str | None:
        if not hung:
            hung.append(outbound)
            await asyncio.Event().wait()
        return await platform.send(outbound)

    await place.send("x")
    await answer(await place.session(), "y")
    limits = DeliveryLimits(send_timeout_s=0.01, first_wait_s=0.001)
    async with Delivery(place.manager, {"chat": hang_once}, limits=limits):
        assert [sent.content for sent in await platform.until(1)] == ["y"]


async def test_two_processes_that_deliver_one_channel_send_each_answer_once(tmp_path: Path) -> None:
    """Whoever claims an answer in the log first sends it, however many have the channel's connection (C5, C30, EV-16)."""
    url = f"sqlite:///{tmp_path}/s.db"
    places = [await open_bus(url, **WITH_CHAT) for _ in range(3)]
    platform = Platform()
    async with AsyncExitStack() as stack:
        for place in places:
            await stack.enter_async_context(Delivery(place.manager, {"chat": platform.send}, limits=QUICK))
        for number in range(20):
            await places[0].send(f"{number}", chat_id=str(number % 4))
            await answer(await places[0].session(f"chat:{number % 4}"), f"to {number}")
        for chat in range(4):
            await owes_nothing(await places[0].session(f"chat:{chat}"))
    assert sorted(platform.texts, key=str) == sorted((f"to {number}" for number in range(20)), key=str)
    for chat in range(4):
        mine = [text for text in platform.texts if int(text.split()[1]) % 4 == chat]
        assert mine == sorted(mine, key=lambda text: int(text.split()[1]))
    for place in places:
        await place.manager.close()


async def test_claim_of_a_living_process_is_waited_for_until_its_time(open_place: Opener) -> None:
    """What another process has claimed is left to it, and taken over when its time is over (C5)."""
    place, platform = await open_place(**WITH_CHAT), Platform()
    await place.send("hi")
    session = await place.session()
    seq = await answer(session, "hello")
    until = datetime.fromtimestamp(place.manager.now_us() / 1e6 + 30, UTC)
    claim = {"message_seq": seq, "address": {"channel": "chat", "chat_id": "42"}, "status": "claimed"}
    await session.add_event(DeliveryEvent.model_validate({**claim, "by": "another/host/1/2/x", "until": until}))
    async with Delivery(place.manager, {"chat": platform.send}, limits=QUICK) as delivery:
        await delivery.settle()
        assert platform.got == []
        place.clock.advance(31)
        await delivery.sweep()
        await delivery.settle()
        assert platform.texts == ["hello"]


DYING = """
import asyncio, os, signal, sys
from kipu.events.conversation import AgentMessageEvent
from kipu.runtime.messages.bus import MessageBus
from kipu.runtime.messages.delivery import Delivery
from kipu.runtime.messages.inbound import InboundEvent
from kipu.wiring import open_manager

async def main(url, sent):
    manager = await open_manager(url)
    bus = MessageBus(manager, delivering=("chat",))

    async def send(outbound):
        with open(sent, "a") as file:
            file.write(f"{outbound.content}\\n")
        if outbound.content == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        return "id"

    async with Delivery(manager, {"chat": send}):
        for text in ("1", "2", "3"):
            await bus.publish(InboundEvent(channel="chat", chat_id="1", sender_id="ada", content=text))
        session = await manager.get_or_create("chat:1")
        for text in ("1", "2", "3"):
            async with session.turn(take=1) as turn:
                await turn.add_event(AgentMessageEvent(content=text))
        await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["sqlite:///{}/s.db", "jsonl:///{}/s"])
async def test_only_what_was_sent_and_not_recorded_goes_out_twice(kind: str, tmp_path: Path) -> None:
    """After SIGKILL between a send and its record that answer comes again, those before it not, those after it once (C5, C30)."""
    url, sent = kind.format(tmp_path), tmp_path / "sent"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, url, str(sent))
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    assert sent.read_text().split() == ["1", "2"]
    place, platform = await open_bus(url, **WITH_CHAT), Platform()
    session = await place.session("chat:1")
    while session.head.waiting or session.head.open_turn:
        await finish_one(place, session)
    async with Delivery(place.manager, {"chat": platform.send}, limits=DeliveryLimits(look_back_s=10 * 365 * 86400)):
        await owes_nothing(session)
    assert platform.texts[0] == "2"
    assert sorted([*sent.read_text().split(), *platform.texts]) == ["1", "2", "2", "3"]
    await place.manager.close()


async def finish_one(place: BusPlace, session: Session) -> None:
    """Do what a worker would: end the turn of the dead process, or answer the next message."""
    async with session.holding():
        await session.refresh()
        turn_id = session.head.open_turn
        if turn_id is None:
            await answer(session, "3")
            return
        from kipu.events.turn import TurnFinishedEvent

        last = (await log_of(session))[-1]
        events: list[Any] = [] if isinstance(last, AgentMessageEvent) else [AgentMessageEvent(content="3")]
        ending = [*events, TurnFinishedEvent(turn_id=turn_id)]
        await session.add_events([event.model_copy(update={"turn_id": turn_id}) for event in ending])


@pytest.mark.parametrize(("given", "kept"), [(12345, "12345"), ({"id": 7}, "{'id': 7}")], ids=["number", "json"])
async def test_what_was_sent_is_recorded_whatever_its_id_is(open_place: Opener, given: Any, kept: str) -> None:
    """A platform whose ids are no texts gets each answer once, as any other does (C5, C30)."""
    place, sent = await open_place(**WITH_CHAT), list[Outbound]()

    async def send(outbound: Outbound) -> Any:
        sent.append(outbound)
        return given

    async with Delivery(place.manager, {"chat": send}, limits=QUICK) as delivery:
        await place.send("hi")
        session = await place.session()
        await answer(session, "hello")
        async with asyncio.timeout(60):
            await owes_nothing(session)
        await delivery.sweep()
        await delivery.settle()
    assert len(sent) == 1
    assert [event.platform_message_id for event in await deliveries(session)] == [kept]


class PanicError(BaseException):
    """What libraries written in Rust raise."""


@pytest.mark.parametrize("error", [asyncio.CancelledError, PanicError, SystemExit])
async def test_client_that_ends_itself_is_given_up_in_the_end(open_place: Opener, error: type[BaseException]) -> None:
    """A send that was cancelled within the client, or raised no `Exception`, is a failed try, and there are so many (C30)."""
    place, tried = await open_place(**WITH_CHAT), 0

    async def send(_outbound: Outbound) -> str | None:
        nonlocal tried
        tried += 1
        raise error

    async with Delivery(place.manager, {"chat": send}, limits=QUICK):
        await place.send("hi")
        session = await place.session()
        await answer(session, "hello")
        async with asyncio.timeout(60):
            await owes_nothing(session)
    assert tried == QUICK.tries
    assert [event.status for event in await deliveries(session)] == ["failed"]
