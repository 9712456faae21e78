"""Two who want the same: a message, a session, a status. One of them gets it, and the log says who (A39, C3, C4, C12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kipu.errors import ConflictError, LeaseLostError, SessionHeldError, TransitionError
from kipu.events.boundary import StatusChangedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import MessageSettledEvent, TurnStartedEvent
from kipu.manager.manager import SessionManager
from kipu.ports.principal import Principal
from kipu.ports.store import Appended
from kipu.stores.wrapper import WrappedStore
from tests.acceptance.manager.conftest import Opener
from tests.acceptance.manager.test_turns import FastClock


class InterruptedStore(WrappedStore):
    """A store in which somebody else comes first, once."""

    come_first: Callable[[], Awaitable[Any]] | None = None

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        come_first, self.come_first = self.come_first, None
        if come_first is not None:
            await come_first()
        return await super().append(*args, **kwargs)


async def test_a_message_that_was_cancelled_first_is_not_consumed(opener: Opener) -> None:
    """Who cancels a message just before a turn takes it wins: it is settled, and no turn consumes it (C12, A39)."""
    one, two = await opener(), await opener()
    store = one.store = InterruptedStore(one.store)
    session = await one.get_or_create("cli:p")
    arrival = await one.receive("cli:p", UserMessageEvent(content="do it"))
    theirs = await two.get_or_create("cli:p")
    cancelled = MessageSettledEvent(seqs=[arrival.first_seq], reason="cancelled")
    store.come_first = lambda: theirs.add_event(cancelled)
    async with session.turn():
        pass
    started = [event for event in await session.get_full_history() if isinstance(event, TurnStartedEvent)]
    assert [event.consumes for event in started] == [[]]
    assert session.head.waiting == ()


async def test_a_turn_takes_only_what_waits(manager: SessionManager) -> None:
    """A turn that names a message which another turn took is refused, and nothing is appended (C12)."""
    session = await manager.get_or_create("cli:p")
    seq = (await manager.receive("cli:p", UserMessageEvent(content="once"))).first_seq
    async with session.turn(consumes=[seq]):
        pass
    last = session.head.last_seq
    with pytest.raises(ConflictError):
        async with session.turn(consumes=[seq]):
            pass
    assert session.head.last_seq == last


async def test_a_holder_learns_of_a_lost_lease_by_its_renewal(opener: Opener) -> None:
    """When renewing finds the lease taken over, the token raises before anything is sent to the store (C3)."""
    one, two = await opener(lease_ttl_s=0.15), await opener(clock=FastClock())
    mine, theirs = await one.get_or_create("cli:p"), await two.get_or_create("cli:p")

    async def until_refused() -> None:
        async with asyncio.timeout(60):
            while mine.lock.token is not None:  # noqa: ASYNC110 - a renewal tells nobody
                await asyncio.sleep(0.01)

    async with mine.lock, theirs.lock:
        with pytest.raises(LeaseLostError):
            await until_refused()


async def test_an_arrival_leaves_the_status_to_whoever_has_the_lease(opener: Opener) -> None:
    """A message to an expired session that somebody else holds is taken at once; the next turn wakes the session (A54, C5, C13)."""
    one, two = await opener(), await opener()
    session = await one.get_or_create("cli:p")
    await session.set_status("expired")
    theirs = await two.get_or_create("cli:p")
    async with theirs.lock:
        await one.receive("cli:p", UserMessageEvent(content="anybody?"))
        await session.refresh()
        assert session.status == "expired"
    async with session.lock:
        await asyncio.ensure_future(one.receive("cli:p", UserMessageEvent(content="from another task")))
    async with session.turn():
        assert session.status == "active"


async def test_a_session_with_work_stays_active_when_its_key_gets_a_new_one(manager: SessionManager) -> None:
    """`/new` closes the session before only when nothing waits in it: what had reached it is answered there (C5)."""
    busy = await manager.get_or_create("cli:p")
    await manager.receive("cli:p", UserMessageEvent(content="answer me"))
    idle = await manager.new_session("cli:p")
    await busy.refresh()
    assert busy.status == "active"
    await manager.new_session("cli:p")
    await idle.refresh()
    assert idle.status == "expired"


BASE: dict[str, str] = {"tenant": "", "key": "chat:1", "channel": "", "message": "a/b", "revision": ""}
OTHERS: dict[str, dict[str, str]] = {
    "tenant": {"tenant": "t2"},
    "channel": {"channel": "mail"},
    "account": {"key": "chat:1;account=second"},
    "message": {"message": "c"},
    "revision": {"revision": "2"},
    "a part that ends elsewhere": {"message": "a", "revision": "b/"},
}


async def arrive(manager: SessionManager, *, tenant: str, key: str, channel: str, message: str, revision: str) -> bool:
    """Deliver a message and return whether it had been delivered before."""
    event = UserMessageEvent(content="hi", source_message_id=message, channel=channel or None)
    caller = Principal("local", tenant=tenant)
    return (await manager.receive(key, event, revision=revision, principal=caller)).duplicate


@pytest.mark.parametrize("part", sorted(OTHERS))
async def test_two_deliveries_are_one_only_if_every_part_is_equal(manager: SessionManager, part: str) -> None:
    """Tenant, channel, account, source message id and revision together say whether a message is the same (C4)."""
    assert not await arrive(manager, **BASE)
    assert not await arrive(manager, **{**BASE, **OTHERS[part]})
    assert await arrive(manager, **BASE)
    assert await arrive(manager, **{**BASE, **OTHERS[part]})


async def test_events_say_who_added_them(manager: SessionManager) -> None:
    """The principal who asked stands in every event, unless the event names somebody (A28, C19)."""
    root = Principal("root", roles=frozenset({"admin"}))
    session = await manager.get_or_create("cli:p")
    mine = await session.add_event(UserMessageEvent(content="one"))
    theirs = await session.add_event(UserMessageEvent(content="two"), principal=root)
    named = await session.add_event(UserMessageEvent(content="three", principal="ann"))
    batch = await session.add_events([UserMessageEvent(content="four")], principal=root)
    principals = [event.principal for event in (mine, theirs, named, *batch)]
    assert principals == [manager.principal.id, "root", "ann", "root"]
    assert [event.principal for event in await session.get_full_history()][1:] == principals


async def test_who_waited_for_a_session_looks_again_before_it_moves_it(opener: Opener) -> None:
    """While a status waited for the lock the session was moved on: the step is judged by where it stands then (A54)."""
    one, two = await opener(), await opener()
    session = await one.get_or_create("cli:p")
    theirs = await two.open(session.session_id)
    async with theirs.holding():
        expired, archived = (asyncio.create_task(session.set_status(to)) for to in ("expired", "archived"))
        await asyncio.sleep(0.05)  # both wait for it now
        await theirs.set_status("archived")
    with pytest.raises(TransitionError):
        await expired
    assert await archived is False
    changes = [event.status for event in await session.get_full_history() if isinstance(event, StatusChangedEvent)]
    assert changes == ["archived"]


@pytest.mark.parametrize("waits", [True, False])
async def test_a_hold_that_comes_first_keeps_a_session_out_of_the_trash(opener: Opener, waits: bool) -> None:
    """Held while the trash waited for the lock, or in the moment before its append: it stays (A54, B58)."""
    one, two = await opener(), await opener()
    store = one.store = InterruptedStore(one.store)
    session = await one.get_or_create("cli:p")
    theirs = await two.open(session.session_id)
    if waits:
        async with theirs.holding():
            trashed = asyncio.create_task(session.set_status("trashed"))
            await asyncio.sleep(0.05)  # it waits for it now
            await two.hold_session(session.session_id, reason="a court asked")
    else:
        store.come_first = lambda: two.hold_session(session.session_id, reason="a court asked")
        trashed = asyncio.create_task(session.set_status("trashed"))
    with pytest.raises(SessionHeldError):
        await trashed
    assert session.status == "active"
