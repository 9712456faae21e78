"""Turns and locks: one at a time for a session, side by side for different ones."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext

import pytest

from kipu.errors import LeaseLostError, LeaseRequiredError, SessionBusyError
from kipu.events.conversation import AgentMessageEvent, ToolCallEvent, ToolResultEvent, UserMessageEvent
from kipu.events.turn import TurnFinishedEvent
from kipu.manager.manager import SessionManager
from kipu.ports.store import EventStore, Lease
from kipu.stores.host import SystemClock
from kipu.stores.wrapper import WrappedStore
from kipu.testing.fakes import FakeClock
from kipu.testing.validators import validate
from tests.acceptance.manager.conftest import Opener


async def run_turn(manager: SessionManager, key: str, name: str, seen: list[str]) -> None:
    """Take a turn that calls a tool, noting what the model saw when it began."""
    session = await manager.get_or_create(key)
    await manager.receive(key, UserMessageEvent(content=name))
    async with session.turn(take=1) as turn:
        context = await session.get_context_for_llm("neutral")
        seen.append(f"{name}:{len(context)}")
        await turn.add_event(ToolCallEvent(tool_name="t", tool_call_id=f"c-{name}"))
        await asyncio.sleep(0)
        await turn.add_event(ToolResultEvent(tool_call_id=f"c-{name}", result="ok"))
        await turn.add_event(AgentMessageEvent(content=f"done {name}"))


async def test_turns_of_one_session_run_strictly_one_after_another(opener: Opener) -> None:
    """Turns of two managers on one session never interleave, and each sees all of those before it (A1, A39, A65, C3)."""
    one, two = await opener(), await opener()
    await one.get_or_create("cli:p")
    seen: list[str] = []
    await asyncio.gather(*(run_turn(manager, "cli:p", f"{n}", seen) for n, manager in enumerate([one, two] * 3)))
    events = await (await one.get_or_create("cli:p")).get_full_history()
    open_turn: str | None = None
    for event in events:
        if event.event_type == "turn_started":
            assert open_turn is None
            open_turn = event.turn_id
        elif event.event_type == "turn_finished":
            assert event.turn_id == open_turn
            open_turn = None
        elif event.event_type in ("tool_call", "tool_result", "agent_message"):
            assert event.turn_id == open_turn
    assert sorted(int(entry.split(":")[1]) for entry in seen) == [1, 5, 9, 13, 17, 21], seen
    context = await (await one.get_or_create("cli:p")).get_context_for_llm("neutral")
    assert validate("neutral", {"messages": context}, may_end_with_model=True) == []


async def test_different_sessions_run_in_parallel(manager: SessionManager) -> None:
    """A turn of one session that never ends does not keep another from running (A40, A65)."""
    slow, quick = await manager.get_or_create("cli:slow"), await manager.get_or_create("cli:quick")
    async with slow.turn(), quick.turn() as turn:
        await turn.add_event(AgentMessageEvent(content="here"))
    assert (await quick.get_recent_events(2))[0].event_type == "agent_message"


async def test_acquire_gives_the_same_lock_for_the_same_key(manager: SessionManager) -> None:
    """acquire(key) is one lock per resolved session, FIFO, and another key's is another (A37, A39)."""
    lock = await manager.acquire("cli:p")
    assert await manager.acquire("cli:p") is lock
    assert await manager.acquire("cli:q") is not lock
    await manager.add_alias("cli:alias", "cli:p")
    assert await manager.acquire("cli:alias") is lock
    order: list[int] = []

    async def hold(number: int) -> None:
        async with await manager.acquire("cli:p"):
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(hold(number) for number in range(5)))
    assert order == [number for number in range(5) for _ in range(2)]


async def test_a_second_manager_waits_for_the_lease_or_is_told_who_has_it(opener: Opener) -> None:
    """While one process holds a session, another waits, or after its patience learns who holds it (C3, situation 44)."""
    one, two = await opener(), await opener()
    mine, theirs = await one.get_or_create("cli:p"), await two.get_or_create("cli:p")
    async with mine.lock:
        with pytest.raises(SessionBusyError) as caught:
            async with theirs.turn(wait_s=0.05):
                pass
        assert caught.value.owner == one.owner
        with pytest.raises(LeaseRequiredError):
            await theirs.add_event(AgentMessageEvent(content="interloper"))
        await theirs.add_event(UserMessageEvent(content="arrivals never wait"))
    async with theirs.turn(wait_s=5):
        pass
    assert [event.event_type for event in await mine.get_full_history()] == [
        "session_init", "user_message", "turn_started", "turn_finished",
    ]  # fmt: skip


class FastClock:
    """A clock that is an hour ahead of the system's."""

    def now_us(self) -> int:
        return SystemClock().now_us() + 3_600_000_000


async def test_a_stale_lease_appends_nothing(opener: Opener) -> None:
    """Who lost the lease is stopped at the next append, and the log shows only the new holder's events (C3, C16)."""
    one, two = await opener(), await opener(clock=FastClock())
    stale, fresh = await one.get_or_create("cli:p"), await two.get_or_create("cli:p")

    async def overtaken() -> None:
        async with stale.turn() as turn:
            # To the other's clock the lease is over: nothing but the fencing token protects the log.
            async with fresh.turn(wait_s=5) as other:
                await other.add_event(AgentMessageEvent(content="I have it now"))
            await turn.add_event(AgentMessageEvent(content="I still believe"))

    with pytest.raises(LeaseLostError):
        await overtaken()
    texts = [event.content for event in await fresh.get_full_history() if isinstance(event, AgentMessageEvent)]
    assert texts == ["I have it now"]


class RenewedStore(WrappedStore):
    """Tell of each renewal once it is done."""

    def __init__(self, inner: EventStore) -> None:
        super().__init__(inner)
        self.renewed = asyncio.Event()

    async def renew(self, lease: Lease) -> Lease:
        later = await super().renew(lease)
        self.renewed.set()
        return later


async def test_a_lease_is_renewed_while_it_is_held(opener: Opener) -> None:
    """A turn longer than the lease keeps it (C3)."""
    clock = FakeClock()
    one, two = await opener(lease_ttl_s=0.15, clock=clock), await opener(clock=clock)
    store = one.store = RenewedStore(one.store)
    mine, theirs = await one.get_or_create("cli:p"), await two.get_or_create("cli:p")
    async with mine.turn() as turn:
        for _ in range(3):
            clock.advance(0.1)
            store.renewed.clear()
            async with asyncio.timeout(60):
                await store.renewed.wait()
        with pytest.raises(SessionBusyError):
            async with theirs.turn(wait_s=0):
                pass
        await turn.add_event(AgentMessageEvent(content="still mine"))


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "completed"), (ValueError("x"), "failed"), (asyncio.CancelledError(), "cancelled")]
)
async def test_a_turn_always_ends_with_its_outcome(
    manager: SessionManager, error: BaseException | None, outcome: str
) -> None:
    """However the block is left, turn_finished says how, and the session is free again (A73)."""
    session = await manager.get_or_create("cli:p")
    with nullcontext() if error is None else pytest.raises(type(error)):
        async with session.turn():
            if error is not None:
                raise error
    (last,) = await session.get_recent_events(1)
    assert isinstance(last, TurnFinishedEvent)
    assert last.outcome == outcome
    assert session.head.open_turn is None
    assert not session.lock.in_use


async def test_a_turn_consumes_what_waited(manager: SessionManager) -> None:
    """Queued messages are shown once a turn consumes them, and no longer wait (A1, A63)."""
    session = await manager.get_or_create("cli:p")
    await manager.receive("cli:p", UserMessageEvent(content="one"))
    assert await session.get_context_for_llm() == []
    assert len(session.head.waiting) == 1
    async with session.turn():
        await manager.receive("cli:p", UserMessageEvent(content="two"))
        assert [message["content"] for message in await session.get_context_for_llm()] == ["one"]
    assert len(session.head.waiting) == 1
    async with session.turn():
        assert [message["content"] for message in await session.get_context_for_llm()] == ["one", "two"]
    assert not session.head.waiting


async def test_every_turn_that_began_has_an_end_when_tasks_are_cancelled_anywhere(manager: SessionManager) -> None:
    """Cancelled at any await, a turn is either not in the log, or finished in it; no session is left held (A39, C2)."""
    session = await manager.get_or_create("cli:p")
    chance = random.Random(7)

    async def work(name: str) -> None:
        async with session.turn() as turn:
            await turn.add_event(AgentMessageEvent(content=name))

    for number in range(150):
        task = asyncio.create_task(work(str(number)))
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not session.in_use
    events = await session.get_full_history()
    began = [event.turn_id for event in events if event.event_type == "turn_started"]
    ended = [event.turn_id for event in events if event.event_type == "turn_finished"]
    assert len(began) > 10
    assert sorted(map(str, began)) == sorted(map(str, ended))
    assert session.head.open_turn is None
