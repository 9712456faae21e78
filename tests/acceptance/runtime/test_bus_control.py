"""The control lane answers while a turn runs, and of two who want a message one gets it (A44, C12, C13)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kipu.errors import ApprovalNotFoundError, ConflictError, SessionNotFoundError
from kipu.events.turn import MessageSettledEvent, StopRequestedEvent, TurnStartedEvent
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from tests.acceptance.runtime.bus_place import BusPlace, Opener, log_of, open_bus

CANCELLER = """
import asyncio, sys
from kipu.errors import ConflictError
from kipu.runtime.messages.bus import MessageBus
from kipu.wiring import open_manager

async def main(url, session_id, seqs):
    manager = await open_manager(url)
    control = MessageBus(manager).control
    print("ready", flush=True)
    sys.stdin.readline()
    for seq in seqs:
        try:
            await control.cancel(session_id, seq)
        except ConflictError:
            pass
    await manager.close()

asyncio.run(main(sys.argv[1], sys.argv[2], [int(seq) for seq in sys.argv[3:]]))
"""


async def test_stop_is_taken_while_a_turn_holds_the_session(open_place: Opener) -> None:
    """A stop is in the log while the turn runs under its lease, with its mode; the worker is woken (A44, C13)."""
    place = await open_place()
    session = await place.session()
    assert await place.bus.control.stop(session.session_id) is None
    await place.send("work")
    async with session.turn(take=1) as turn:
        elsewhere = asyncio.create_task(place.bus.control.stop(session.session_id, "interrupt"))
        assert await asyncio.wait_for(elsewhere, 60) == turn.id
        status = await place.bus.control.status(session.session_id)
        assert (status.state, status.open_turn) == ("stopping", turn.id)
        assert status.owner == place.manager.owner
    (stop,) = [event for event in await log_of(session) if isinstance(event, StopRequestedEvent)]
    assert (stop.turn_id, stop.mode) == (turn.id, "interrupt")
    assert place.woken[-1] == session.session_id


async def test_status_says_what_the_session_is_doing(open_place: Opener) -> None:
    """Idle, waiting, running and parked are told apart, with how much waits (C13)."""
    place = await open_place()
    session = await place.session()
    control = place.bus.control

    async def state() -> tuple[str, int]:
        status = await control.status(session.session_id)
        assert status.last_seq == session.head.last_seq
        return status.state, status.waiting

    assert await state() == ("idle", 0)
    await place.send("1")
    await place.send("2")
    assert await state() == ("waiting", 2)
    async with session.turn(take=1) as turn:
        assert await asyncio.create_task(state()) == ("running", 1)
        await turn.park(["ap"], until=None)
    assert await state() == ("parked", 1)


async def test_queue_shows_policy_age_and_times(open_place: Opener) -> None:
    """Each waiting message is listed with its policy, how long it waits, and when it is due and expires (C13)."""
    place = await open_place()
    first = await place.send("one", policy={"mode": "steer", "ttl_ms": 10_000})
    place.clock.advance(4)
    await place.send("two " * 100, policy={"mode": "collect", "debounce_ms": 3_000}, sender_id="bo")
    place.clock.advance(1)
    one, two = await place.bus.control.queue(first.session_id)
    assert (one.seq, one.mode, one.age_s, one.expires_in_s, one.due_in_s) == (first.seq, "steer", 5.0, 5.0, 0.0)
    assert (two.mode, two.age_s, two.expires_in_s, two.due_in_s) == ("collect", 1.0, None, 2.0)
    assert (two.author.sender_id, len(two.text)) == ("bo", 200)


async def test_a_cancelled_message_gets_no_turn(open_place: Opener) -> None:
    """A message taken back is settled as cancelled, cannot be cancelled twice, and no turn consumes it (C12, C13)."""
    place = await open_place()
    first, second = await place.send("1"), await place.send("2")
    session = await place.session()
    async with session.turn(consumes=[second.seq]):
        settled = await asyncio.create_task(place.bus.control.cancel(session.session_id, first.seq))
    assert isinstance(settled, MessageSettledEvent)
    assert (settled.seqs, settled.reason) == ([first.seq], "cancelled")
    for seq in (first.seq, second.seq, 999):
        with pytest.raises(ConflictError, match="not waiting"):
            await place.bus.control.cancel(session.session_id, seq)
    assert session.head.waiting == ()


async def test_control_is_only_for_those_who_may(open_place: Opener) -> None:
    """Who may not see a session can neither stop it nor look at nor change what waits in it (C19, A20)."""
    place = await open_place()
    receipt = await place.send("mine")
    control, eve = place.bus.control, Principal("eve")
    for call in (
        control.stop(receipt.session_id, principal=eve),
        control.queue(receipt.session_id, principal=eve),
        control.cancel(receipt.session_id, receipt.seq, principal=eve),
        control.status(receipt.session_id, principal=eve),
    ):
        with pytest.raises(SessionNotFoundError):
            await call
    assert (await place.session()).head.waiting == (receipt.seq,)


async def test_decisions_need_a_desk() -> None:
    """Where nobody asks for approvals, approving or denying says so (C15)."""
    place = await open_bus("memory://")
    for decide in (place.bus.control.approve, place.bus.control.deny):
        with pytest.raises(ApprovalNotFoundError):
            await decide("ap_1")
    await place.manager.close()


@pytest.mark.parametrize("kind", ["sqlite:///{}/s.db", "jsonl:///{}/s"])
async def test_cancel_and_start_of_two_processes_never_share_a_message(kind: str, tmp_path: Path) -> None:
    """While one process cancels messages and another starts turns with them, each message goes to exactly one (C12, A39)."""
    url = kind.format(tmp_path)
    place = await open_bus(url)
    seqs = [(await place.send(f"{number}")).seq for number in range(40)]
    session = await place.session()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CANCELLER, url, session.session_id, *(str(seq) for seq in reversed(seqs)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
    process.stdin.write(b"go\n")
    await run_all(place, session)
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 60) == 0
    events = await log_of(session)
    consumed = [seq for event in events if isinstance(event, TurnStartedEvent) for seq in event.consumes]
    cancelled = [seq for event in events if isinstance(event, MessageSettledEvent) for seq in event.seqs]
    assert sorted([*consumed, *cancelled]) == seqs
    assert consumed == sorted(consumed)
    await place.manager.close()


async def run_all(place: BusPlace, session: Session) -> None:
    """Give every message that waits a turn, one by one, until none does."""
    while True:
        await session.refresh()
        if not session.head.waiting:
            return
        try:
            async with session.turn(consumes=session.head.waiting[:1]):
                pass
        except ConflictError:  # the other one got it
            continue
