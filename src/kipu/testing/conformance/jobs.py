"""What other processes do at a place while a requirement looks on."""

from __future__ import annotations

import asyncio
import time

from kipu.errors import StoreMovedError
from kipu.ports.clock import Clock
from kipu.testing.conformance.place import Place
from kipu.testing.conformance.second_process import Outlet
from kipu.testing.conformance.subject import TURN_TYPE, Subject
from kipu.testing.faults.shot import kill_in_write


def subject_here(place: Place, clock: Clock, *, name: str) -> Subject:
    """Return a subject of this process whose event ids are its own."""
    subject = Subject(place, seed=hash(name) & 0xFFFF_FFFF)
    subject.clock.advance((clock.now_us() - subject.clock.now_us()) / 1_000_000)
    return subject


async def append_many(
    place: Place, outlet: Outlet, *, clock: Clock, name: str, session_ids: list[str], count: int
) -> None:
    """Append `count` events to the sessions in turn and tell session, seq and text of each that was acknowledged."""
    subject = subject_here(place, clock, name=name)
    store = await subject.open()
    for number in range(count):
        session_id = session_ids[number % len(session_ids)]
        text = f"{name}.{number}"
        outcome = await subject.say(store, session_id, text=text)
        outlet.tell([session_id, outcome.first_seq, text])
    await subject.close()


async def append_until_refused(
    place: Place, outlet: Outlet, *, clock: Clock, name: str, session_ids: list[str]
) -> None:
    """Append to the sessions in turn and tell session, seq and text of each that was acknowledged; at last the refusal's code."""
    subject = subject_here(place, clock, name=name)
    store = await subject.open()
    number = 0
    while True:
        session_id, text = session_ids[number % len(session_ids)], f"{name}.{number}"
        number += 1
        try:
            outcome = await subject.say(store, session_id, text=text)
        except StoreMovedError as error:
            outlet.tell(error.code)
            break
        outlet.tell([session_id, outcome.first_seq, text])
    await subject.close()


async def append_until_killed(
    place: Place,
    outlet: Outlet,
    *,
    clock: Clock,
    name: str,
    session_id: str,
    size: int,
    at_once: int = 1,
    shot: tuple[int, int] | None = None,
) -> None:
    """Append events of about `size` bytes as fast as the store acknowledges them, telling seq, number and time, for ever.

    `at_once` appends are under way together, each by itself. With `shot` (which write, nanoseconds into it) it kills itself.
    """
    if shot is not None:
        kill_in_write(shot[0], size=size, delay_ns=shot[1])
    subject = subject_here(place, clock, name=name)
    store = await subject.open()

    async def write(number: int) -> None:
        outcome = await subject.say(store, session_id, text=f"{name}.{number}." + "x" * size)
        outlet.tell([outcome.first_seq, number, time.monotonic_ns()])

    first = 0
    while True:
        await asyncio.gather(*(write(first + n) for n in range(at_once)))
        first += at_once


async def take_turns(place: Place, outlet: Outlet, *, clock: Clock, name: str, turns: int) -> None:
    """Take `turns` turns on session `s1`, three events each under its lease, telling each token."""
    subject = subject_here(place, clock, name=name)
    store = await subject.open()
    for turn in range(turns):
        while (lease := await store.claim("s1", owner=f"host/boot/{name}/1/w", ttl_s=3600)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.002)  # the holder is another process
        for step in range(3):
            record = subject.record(f"{name}.{turn}.{step}", event_type=TURN_TYPE)
            await store.append("s1", [record], token=lease.token)
        outlet.tell(lease.token)
        await store.release(lease)
    await subject.close()


async def append_when_told(
    place: Place, outlet: Outlet, *, clock: Clock, name: str, session_id: str, batches: list[int]
) -> None:
    """Append batches of the given sizes and tell the last seq of each."""
    subject = subject_here(place, clock, name=name)
    store = await subject.open()
    for number, size in enumerate(batches):
        records = [subject.record(f"{name}.{number}.{n}") for n in range(size)]
        outlet.tell((await store.append(session_id, records)).last_seq)
    await subject.close()


async def erase_one(place: Place, outlet: Outlet, *, clock: Clock, session_id: str) -> None:
    """Claim and erase a session, telling when it begins and ends."""
    subject = subject_here(place, clock, name="eraser")
    store = await subject.open()
    lease = await subject.claim(store, session_id, ttl_s=3600)
    outlet.tell("begins")
    await store.erase(session_id, lease=lease)
    outlet.tell("erased")
    await subject.close()
