"""How a turn's block is entered and left: by its own holder, with a store that fails, parked, and taken up again (A39, C3, C14, C15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from kipu.errors import ConflictError, LeaseLostError, SessionBusyError, StoreUnavailableError
from kipu.events.boundary import NoteEvent
from kipu.events.conversation import AgentMessageEvent
from kipu.events.event import SessionEvent
from kipu.events.turn import TurnFinishedEvent, TurnResumedEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.store import Appended
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_turns import FastClock

LONGEST_S = 60.0


class AppendingStore(WrappedStore):
    """A store in which something happens once, before an append or behind it."""

    before: Callable[[], Awaitable[Any]] | None = None
    behind: Callable[[], Awaitable[Any]] | None = None

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        before, self.before = self.before, None
        if before is not None:
            await before()
        appended = await super().append(*args, **kwargs)
        behind, self.behind = self.behind, None
        if behind is not None:
            await behind()
        return appended


async def over(opener: Opener) -> tuple[AppendingStore, Session]:
    """Return a session over such a store, and the store."""
    manager = await opener()
    store = AppendingStore(manager.store)
    manager.store = store
    return store, await manager.get_or_create("cli:p")


async def fail() -> None:
    """Be a store that is away."""
    raise StoreUnavailableError(store="test", reason="away")


async def types(session: Session) -> list[str]:
    """Return the types of all events behind the first."""
    return [event.event_type for event in await session.get_full_history()][1:]


async def test_who_holds_the_session_takes_its_turn_under_the_same_lock(manager: SessionManager) -> None:
    """A holder's turn waits for nobody and leaves the lock to it; a turn within a turn is refused at once (A39)."""
    session = await manager.get_or_create("cli:p")
    async with asyncio.timeout(LONGEST_S), session.holding():
        async with session.turn():
            with pytest.raises(SessionBusyError):
                await session.turn().__aenter__()
        assert session.lock.mine
        async with session.turn():  # the first one has ended: this one is within none
            pass
    assert not session.lock.in_use
    assert await types(session) == ["turn_started", "turn_finished"] * 2


async def test_a_turn_whose_beginning_fails_is_not_in_the_log(opener: Opener) -> None:
    """The caller gets the store's error, nobody holds the session, and the next turn begins (A39, C16)."""
    store, session = await over(opener)
    store.before = fail
    with pytest.raises(StoreUnavailableError):
        await session.turn().__aenter__()
    assert not session.lock.in_use
    assert await types(session) == []
    async with asyncio.timeout(LONGEST_S), session.turn():
        pass
    assert await types(session) == ["turn_started", "turn_finished"]


@pytest.mark.parametrize("is_back", [True, False])
async def test_a_turn_whose_beginning_was_stored_though_it_failed_has_an_end(opener: Opener, is_back: bool) -> None:
    """Where the log says that it began, it says as well that it failed; the caller gets what stopped it (A39, C16)."""
    store, session = await over(opener)

    async def fail_behind() -> None:
        if not is_back:
            store.before = fail
        raise StoreUnavailableError(store="test", reason="first")

    store.behind = fail_behind
    with pytest.raises(StoreUnavailableError, match="first"):
        await session.turn().__aenter__()
    assert not session.lock.in_use
    await session.refresh()
    assert (session.head.open_turn is None) is is_back
    (last,) = await session.get_recent_events(1)
    assert isinstance(last, TurnFinishedEvent) is is_back
    if isinstance(last, TurnFinishedEvent):
        assert (last.outcome, "first" in str(last.error)) == ("failed", True)


async def test_a_parked_turn_is_taken_up_under_its_own_id(opener: Opener) -> None:
    """Parked, it stays open and holds nothing; any process goes on with it, on record, and ends it once (C14, C15)."""
    one, two = await opener(), await opener()
    session = await one.get_or_create("cli:p")
    async with session.turn() as turn:
        await turn.park(["p"], until=None)
    assert (session.head.open_turn, session.head.parked, session.lock.in_use) == (turn.id, True, False)
    theirs = await two.open(session.session_id)
    async with asyncio.timeout(LONGEST_S), theirs.resumed_turn() as resumed:
        assert resumed.id == turn.id
        assert not theirs.head.parked
        said = await resumed.add_event(AgentMessageEvent(content="on with it"))
    assert said.turn_id == turn.id
    assert await types(theirs) == ["turn_started", "turn_parked", "turn_resumed", "agent_message", "turn_finished"]
    with pytest.raises(ConflictError):
        await session.resumed_turn().__aenter__()
    assert not session.lock.in_use


async def test_a_turn_that_is_left_open_is_another_workers(manager: SessionManager) -> None:
    """Whatever the block is left with, a turn that is to be taken over has no end (C14)."""
    session = await manager.get_or_create("cli:p")

    async def fail_open() -> None:
        async with session.turn() as turn:
            turn.leave_open()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail_open()
    assert session.head.open_turn is not None
    assert not session.lock.in_use
    assert await types(session) == ["turn_started"]


async def test_a_turn_that_could_not_be_taken_up_stays_open(opener: Opener) -> None:
    """It did not fail: only this try to go on with it did, and the next one may (C14, C16)."""
    store, session = await over(opener)
    async with session.turn() as turn:
        turn.leave_open()
    store.before = fail
    with pytest.raises(StoreUnavailableError):
        await session.resumed_turn().__aenter__()
    assert (session.head.open_turn, session.lock.in_use) == (turn.id, False)
    async with asyncio.timeout(LONGEST_S), session.resumed_turn():
        pass
    events = await session.get_full_history()
    assert [type(event) for event in events[2:]] == [TurnResumedEvent, TurnFinishedEvent]


@pytest.mark.parametrize("error", [None, ValueError("mine")])
async def test_who_lost_the_session_learns_so_at_the_end(opener: Opener, error: ValueError | None) -> None:
    """A turn that could not be finished has not succeeded; one that failed tells of its own failure (C3)."""
    one, two = await opener(), await opener(clock=FastClock())
    stale, fresh = await one.get_or_create("cli:p"), await two.get_or_create("cli:p")

    async def overtaken() -> None:
        async with stale.turn():
            async with fresh.turn(wait_s=LONGEST_S):
                pass
            if error is not None:
                raise error

    with pytest.raises(LeaseLostError if error is None else ValueError):
        await overtaken()
    assert not stale.lock.in_use
    finished = [event for event in await fresh.get_full_history() if isinstance(event, TurnFinishedEvent)]
    assert len(finished) == 1


async def test_nothing_of_a_turn_is_appended_behind_its_block(manager: SessionManager) -> None:
    """Who keeps the turn and goes on with it when its lock is given back is stopped (C3)."""
    session = await manager.get_or_create("cli:p")
    async with session.turn() as turn:
        pass
    with pytest.raises(LeaseLostError):
        await turn.add_event(AgentMessageEvent(content="too late"))
    assert await types(session) == ["turn_started", "turn_finished"]


async def test_what_belongs_to_a_turns_end_is_asked_of_the_log_as_it_stands(opener: Opener) -> None:
    """What arrives between the question and the append is seen: the question is asked again, and the end is one append (C2, C12)."""
    store, session = await over(opener)
    other = await (await opener()).open(session.session_id)
    asked: list[int] = []

    async def at_end() -> Sequence[SessionEvent]:
        asked.append(session.history.last_seq)
        if len(asked) == 1:
            store.before = lambda: other.add_event(NoteEvent(kind="mail"))
        return [NoteEvent(kind="end", data={"seen": asked[-1]})]

    async with session.turn() as turn:
        turn.at_end = at_end
    events = await session.get_full_history()
    assert [event.event_type for event in events[1:]] == ["turn_started", "note", "turn_finished", "note"]
    assert asked == [2, 3]
    last = events[-1]
    assert isinstance(last, NoteEvent)
    assert last.data == {"seen": 3}


async def test_a_cancelled_end_is_an_end_all_the_same(opener: Opener) -> None:
    """Cancelled while its end is appended, a turn has one in the log, and the task is cancelled (A39, C2)."""
    for stored in (True, False):
        store, session = await over(opener)

        async def cancelled() -> None:
            raise asyncio.CancelledError

        async def take_turn(store: AppendingStore = store, session: Session = session, stored: bool = stored) -> None:
            async with session.turn():
                if stored:
                    store.behind = cancelled
                else:
                    store.before = cancelled

        with pytest.raises(asyncio.CancelledError):
            await take_turn()
        await session.refresh()
        assert (session.head.open_turn, session.lock.in_use) == (None, False)
        assert (await types(session)).count("turn_started") == (await types(session)).count("turn_finished")


async def test_a_cancelled_end_is_cancelled_also_where_the_store_is_away(opener: Opener) -> None:
    """The end cannot be said then; the task ends as it was told to, and nobody holds the session (C16)."""
    store, session = await over(opener)

    async def cancelled() -> None:
        store.before = fail
        raise asyncio.CancelledError

    async def take_turn() -> None:
        async with session.turn():
            store.before = cancelled

    with pytest.raises(asyncio.CancelledError):
        await take_turn()
    assert not session.lock.in_use
