"""Memory by itself: which sessions are taken in, when, and that a failure stops nothing else."""

from __future__ import annotations

from kipu.errors import ModelUnavailableError
from kipu.events.boundary import ConsolidationEvent
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.memory.consolidation import ConsolidationPolicy
from kipu.memory.keeper import KeeperPolicy, MemoryKeeper
from kipu.testing.fakes import FakeClock
from kipu.testing.scripted_model import ScriptedModelClient
from tests.acceptance.memory.conftest import Opened, say, texts
from tests.acceptance.runtime.fakes import until

KEEP_ONE = ConsolidationPolicy(keep_exchanges=1)


async def a_session(manager: SessionManager, key: str, *lines: str, **metadata: object) -> Session:
    """Make a session with these exchanges."""
    session = await manager.get_or_create(key, initial_context=metadata)
    await say(session, *lines)
    return session


async def test_idle_sessions_are_taken_in_once_and_busy_ones_left_alone(opened: Opened) -> None:
    """A session is taken in when nothing was said for a while, its tail staying out, and looked at again when it has moved on (A60)."""
    clock = FakeClock()
    manager, memory = await opened(manager={"clock": clock}, clock=clock, policy=KEEP_ONE)
    keeper = MemoryKeeper(manager, memory, policy=KeeperPolicy(idle_s=600))
    session = await a_session(manager, "cli:a", "The port is 1.", "ok")
    assert await keeper.look() == 0
    clock.advance(601)
    await a_session(manager, "cli:b", "The host is h2.", "ok")
    assert await keeper.look() == 1
    assert await texts(memory) == ["The port is 1."]
    assert await keeper.look() == 0
    await say(session, "The user is u3.", "ok")
    clock.advance(-10_000)
    assert await keeper.look() == 0, "a clock that was set back makes nobody idle"
    clock.advance(20_000)
    assert await keeper.look() == 2
    assert await texts(memory) == ["The host is h2.", "The port is 1.", "The user is u3."]


async def test_long_sessions_are_taken_in_while_they_go_on(opened: Opened) -> None:
    """With enough tokens behind the boundary a session does not wait until it is idle."""
    clock = FakeClock()
    manager, memory = await opened(manager={"clock": clock}, clock=clock, policy=KEEP_ONE)
    keeper = MemoryKeeper(manager, memory, policy=KeeperPolicy(enough_tokens=300))
    session = await a_session(manager, "cli:a", "The port is 1.")
    assert await keeper.look() == 0
    await say(session, "a long story " * 200, "ok")
    assert await keeper.look() == 1
    assert await texts(memory) == ["The port is 1."]


async def test_a_session_that_new_or_expiry_ended_is_taken_in_whole(opened: Opened) -> None:
    """What `/new` left, and what expired, is taken in to its end; where that is switched off, as any idle session (A57)."""
    clock = FakeClock()
    manager, memory = await opened(manager={"clock": clock}, clock=clock, policy=KEEP_ONE)
    await a_session(manager, "cli:a", "The port is 1.")
    await manager.new_session("cli:a")
    off = MemoryKeeper(manager, memory, policy=KeeperPolicy(at_end=False))
    assert await off.look() == 0
    assert await MemoryKeeper(manager, memory).look() == 1
    expired = await a_session(manager, "cli:b", "The host is h2.")
    await expired.set_status("expired")
    assert await MemoryKeeper(manager, memory).look() == 1
    assert await texts(memory) == ["The host is h2.", "The port is 1."]


async def test_a_failing_model_stops_no_other_session(opened: Opened) -> None:
    """A session whose model fails is told of and tried again when it has moved on; the others are taken in (A60)."""
    clock = FakeClock()
    failing = ScriptedModelClient([ModelUnavailableError(model="m", endpoint="e", reason="down", retry_after_s=None)])
    manager, memory = await opened(
        manager={"clock": clock},
        clock=clock,
        policy=KEEP_ONE,
        model_for=lambda session: failing if session.head.metadata.get("model") == "failing" else None,
    )
    bad = await a_session(manager, "cli:a", "The port is 1.", "ok", model="failing")
    await a_session(manager, "cli:b", "The host is h2.", "ok")
    clock.advance(1_000)
    keeper = MemoryKeeper(manager, memory)
    assert await keeper.look() == 1
    assert await keeper.look() == 0
    assert len(failing.requests) == 1
    assert bad.last_consolidated == 0
    assert await texts(memory) == ["The host is h2."]


async def test_what_an_agent_told_its_helper_is_nobodys_word(opened: Opened) -> None:
    """Sessions in which an agent writes in a person's place teach nothing (A19)."""
    manager, memory = await opened(policy=ConsolidationPolicy(keep_exchanges=0))
    helper = await a_session(manager, "cli:h", "I prefer tabs over spaces.", **{"kipu.parent": {"session_id": "x"}})
    await helper.set_status("expired")
    assert await MemoryKeeper(manager, memory).look() == 0
    assert await memory.worker.consolidate(helper.session_id) is None


async def test_it_looks_by_itself_and_ends_with_its_block(opened: Opened) -> None:
    """Within its block the keeper takes a session in without being asked."""
    manager, memory = await opened(policy=KEEP_ONE)
    session = await a_session(manager, "cli:a", "The port is 1.", "ok")
    async with MemoryKeeper(manager, memory, policy=KeeperPolicy(idle_s=0.0, first_s=0.0, sweep_s=0.01)):
        await until(session, ConsolidationEvent)
    assert await texts(memory) == ["The port is 1."]


async def test_a_waiting_message_is_left_for_its_turn(opened: Opened) -> None:
    """A session with an unanswered message is taken in up to it and no further (A60)."""
    clock = FakeClock()
    manager, memory = await opened(manager={"clock": clock}, clock=clock, policy=KEEP_ONE)
    session = await a_session(manager, "cli:a", "The port is 1.", "ok")
    await manager.receive("cli:a", UserMessageEvent(content="The host is h2."))
    clock.advance(1_000)
    assert await MemoryKeeper(manager, memory).look() == 1
    await session.refresh()
    assert session.last_consolidated < session.head.waiting[0]
