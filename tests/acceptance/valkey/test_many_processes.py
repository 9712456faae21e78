"""Many processes, cancelled callers, frozen workers and wrong clocks over one Valkey server."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from functools import partial

import pytest

from kipu.errors import LeaseLostError
from kipu.ports.store import StoredEvent
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.server import Server
from kipu.testing.conformance.contending import contend
from kipu.testing.conformance.jobs import append_until_killed
from kipu.testing.conformance.place import Capabilities, FunctionPlace
from kipu.testing.conformance.runner import subject_at
from kipu.testing.conformance.second_process import ended, start
from kipu.testing.conformance.subject import text_of
from kipu.testing.fakes import FakeClock
from tests.acceptance.valkey.kit import begin, log, opened, record, texts
from tests.valkey_servers import fresh_prefix, open_valkey, own_server, valkey_url

WITHOUT = Capabilities(files=False, search=False)


def place_at(url: str) -> FunctionPlace:
    """Return a store that processes share."""
    return FunctionPlace(partial(open_valkey, fresh_prefix(url)), WITHOUT)


@pytest.mark.parametrize("sessions", [1, 50])
async def test_eight_processes_make_one_order(sessions: int) -> None:
    """8 processes × 200 appends, on one session and on 50, make a total order with no gap and no loss (C1, C16, A74, VK-7)."""
    async with subject_at(place_at(valkey_url())) as subject:
        await contend(subject, processes=8, count=200, sessions=sessions)


async def test_killed_clients_lose_and_double_nothing() -> None:
    """After SIGKILL of a client in mid-append every event it was told of stands once at its seq (C16, A53, C5)."""
    chance = random.Random(5)
    with own_server(appendonly="yes", appendfsync="always") as server:
        async with subject_at(place_at(server.url)) as subject:
            store = await subject.open()
            await subject.begin(store, "s1")
            last = 1
            for number in range(6):
                process = await start(
                    append_until_killed, subject.place, name=str(number), session_id="s1", size=10_000, at_once=4
                )
                assert process.stdout is not None
                first = [await asyncio.wait_for(process.stdout.readline(), 60) for _ in range(chance.randrange(1, 25))]
                process.kill()
                rest = await ended(process)
                told = len(first) + len(rest.told)
                events = await store.read("s1", after=last)
                assert [event.seq for event in events] == list(range(last + 1, last + 1 + len(events)))
                numbers = sorted(int(text_of(event).split(".")[1]) for event in events)
                assert numbers == list(range(len(numbers)))
                assert len(events) >= told
                last += len(events)
            assert await store.verify() == []


async def test_frozen_worker_is_fenced_when_it_wakes() -> None:
    """A process that slept through its lease appends nothing under it after another took over, and no event is lost (C3, B61, VK-9)."""
    place = place_at(valkey_url())
    async with subject_at(place) as subject:
        store = await subject.open()
        await subject.begin(store, "s1")
        process = await start(append_under_a_lease, place, session_id="s1")
        assert process.stdout is not None
        for _ in range(5):
            await asyncio.wait_for(process.stdout.readline(), 60)
        os.kill(process.pid, signal.SIGSTOP)
        subject.clock.advance(3_600)
        mine = await subject.claim(store, "s1", owner="another")
        head = await store.head("s1")
        assert head is not None
        await store.append("s1", [subject.record("mine", event_type="agent_message")], token=mine.token)
        os.kill(process.pid, signal.SIGCONT)
        rest = await ended(process)
        assert rest.told[-1] == LeaseLostError.code
        said = [text_of(event) for event in await log(store, "s1")]
        assert said[-1] == "mine"
        assert len(said) == head.last_seq + 1


async def append_under_a_lease(place: FunctionPlace, outlet: object, *, clock: FakeClock, session_id: str) -> None:
    """Append turn events until that is refused, telling each, and at last the refusal's code."""
    from kipu.testing.conformance.second_process import Outlet

    assert isinstance(outlet, Outlet)
    async with subject_at(place) as subject:
        store = await subject.open(clock=clock)
        lease = await subject.claim(store, session_id, ttl_s=60)
        while True:
            try:
                done = await store.append(
                    session_id, [subject.record("theirs", event_type="agent_message")], token=lease.token
                )
            except LeaseLostError as error:
                outlet.tell(error.code)
                return
            outlet.tell(done.first_seq)


async def test_server_time_ends_leases() -> None:
    """Opened without a clock the server's counts: a lease of half a second ends by it, whatever this machine's says (B61, VK-16)."""
    async with opened(fresh_prefix(valkey_url())) as store:
        await begin(store, "s")
        lease = await store.claim("s", owner="a", ttl_s=0.5)
        assert lease is not None
        assert await store.claim("s", owner="b", ttl_s=5) is None
        async with asyncio.timeout(60):
            while (taken := await store.claim("s", owner="b", ttl_s=5)) is None:
                await store.head("s")
        assert taken.token == lease.token + 1
        with pytest.raises(LeaseLostError):
            await store.renew(lease)


async def test_cancelled_commands_never_leave_their_answer_to_another() -> None:
    """Commands cancelled at random moments over two connections: each answer that comes is the asker's own (A39, C2, VK-10)."""
    chance = random.Random(3)
    server = Server(Address.parse(fresh_prefix(valkey_url(), connections="2")))
    answered = cancelled = 0

    async def echo(number: int) -> None:
        nonlocal answered
        text = f"{number}:" + "x" * chance.choice([1, 10, 100_000])
        assert (await server.ask("ECHO", text)).decode() == text
        answered += 1

    for lap in range(150):
        calls = [asyncio.ensure_future(echo(10 * lap + number)) for number in range(4)]
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        for call in calls:
            if chance.random() < 0.5:
                call.cancel()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            cancelled += isinstance(outcome, asyncio.CancelledError)
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
    await server.close()
    assert answered > 100
    assert cancelled > 100


async def test_cancelled_store_calls_mix_and_lose_nothing() -> None:
    """Appends and reads cancelled at random moments: each is whole or nothing, and reads are of their session (A39, C2)."""
    chance = random.Random(11)
    sessions = [f"s{number}" for number in range(6)]
    acknowledged: dict[str, list[str]] = {one: [] for one in sessions}

    async def work(session_id: str, number: int) -> None:
        if number % 3 == 0:
            events: list[StoredEvent] = await store.read(session_id, limit=50, backwards=True)
            assert {event.session_id for event in events} == {session_id}
        else:
            text = f"{session_id}.{number}"
            await store.append(session_id, [record(text), record(text)])
            acknowledged[session_id].append(text)

    async with opened(fresh_prefix(valkey_url(), connections="3")) as store:
        for session_id in sessions:
            await begin(store, session_id)
        for lap in range(60):
            calls = [asyncio.ensure_future(work(one, lap)) for one in sessions]
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            for call in calls:
                if chance.random() < 0.4:
                    call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        for session_id in sessions:
            said = await texts(store, session_id)
            assert said[1::2] == said[2::2]  # in pairs
            assert len(set(said)) == (len(said) + 1) // 2
            assert set(acknowledged[session_id]) <= set(said)
        assert await store.verify() == []
