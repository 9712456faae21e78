"""Who may do what: every call of the façade asks, and a session that is not yours is not there (A19, A20, C19)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kipu.errors import SessionNotFoundError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal

ADA, BOB = Principal("ada"), Principal("bob")
ROOT = Principal("root", roles=frozenset({"admin"}))
KEY = "chat:1"


async def first(events: AsyncIterator[Any]) -> Any:
    """Return the first of what is yielded."""
    async for event in events:
        return event
    return None


async def written(session: Session) -> list[str]:
    """Return the types of the session's events, but for those that say what was refused."""
    events = await session.get_full_history(principal=ADA)
    return [event.event_type for event in events if event.event_type != "access_denied"]


async def entered(session: Session, caller: Principal) -> None:
    """Ask for a turn, without entering it."""
    session.turn(principal=caller)


SESSION_CALLS: dict[str, Callable[[Session, Principal], Awaitable[Any]]] = {
    "add_event": lambda s, who: s.add_event(UserMessageEvent(content="x"), principal=who),
    "add_events": lambda s, who: s.add_events([UserMessageEvent(content="x")], principal=who),
    "append": lambda s, who: s.append([UserMessageEvent(content="x")], principal=who),
    "set_metadata": lambda s, who: s.set_metadata(title="mine", principal=who),
    # Nothing would change: neither may that be told to whom it is no business.
    "set_status": lambda s, who: s.set_status("active", principal=who),
    "pin": lambda s, who: s.pin(999, principal=who),
    "turn": entered,
    "render": lambda s, who: s.render(principal=who),
    "get_context_for_llm": lambda s, who: s.get_context_for_llm(principal=who),
    "get_history": lambda s, who: s.get_history(principal=who),
    "get_full_history": lambda s, who: s.get_full_history(principal=who),
    "get_recent_events": lambda s, who: s.get_recent_events(principal=who),
    "events": lambda s, who: first(s.events(principal=who)),
    "records": lambda s, who: first(s.records(principal=who)),
    "follow": lambda s, who: first(s.follow(principal=who)),
    "blob": lambda s, who: s.blob("0" * 64, principal=who),
    "fork": lambda s, who: s.fork(principal=who),
    "rewind": lambda s, who: s.rewind(999, principal=who),
}

MANAGER_CALLS: dict[str, Callable[[SessionManager, str, Principal], Awaitable[Any]]] = {
    "open": lambda m, i, who: m.open(i, principal=who),
    "create_session": lambda m, i, who: m.create_session(i, principal=who),
    "get_or_create": lambda m, i, who: m.get_or_create(KEY, principal=who),
    "new_session": lambda m, i, who: m.new_session(KEY, principal=who),
    "acquire": lambda m, i, who: m.acquire(KEY, principal=who),
    "receive": lambda m, i, who: m.receive(KEY, UserMessageEvent(content="x"), principal=who),
    "save_event": lambda m, i, who: m.save_event(i, UserMessageEvent(content="x"), principal=who),
    "bind_key": lambda m, i, who: m.bind_key("chat:other", i, principal=who),
    "add_alias": lambda m, i, who: m.add_alias("chat:other", KEY, principal=who),
}


@pytest.mark.parametrize("name", sorted(SESSION_CALLS))
async def test_no_call_of_a_session_is_for_others(manager: SessionManager, name: str) -> None:
    """Whoever got hold of a session object that is not theirs gets "not found", and writes nothing of theirs (A20, B56, C19)."""
    session = await manager.get_or_create(KEY, principal=ADA)
    await session.add_event(UserMessageEvent(content="secret"), principal=ADA)
    with pytest.raises(SessionNotFoundError):
        await SESSION_CALLS[name](session, BOB)
    assert await written(session) == ["session_init", "user_message"]


@pytest.mark.parametrize("name", sorted(MANAGER_CALLS))
async def test_knowing_a_key_or_an_id_grants_nothing(manager: SessionManager, name: str) -> None:
    """A key or an id of somebody else's session opens, binds, fills and ends nothing (A20, C19)."""
    session = await manager.get_or_create(KEY, principal=ADA)
    with pytest.raises(SessionNotFoundError):
        await MANAGER_CALLS[name](manager, session.session_id, BOB)
    assert await manager.resolve(KEY, principal=ADA) == session.session_id
    assert await written(session) == ["session_init"]
    assert await manager.list_sessions(principal=BOB) == []


async def test_a_key_is_not_taken_over(manager: SessionManager) -> None:
    """Nobody binds a key that leads to somebody else's session to one of their own, this machine's own user neither (A20)."""
    await manager.get_or_create(KEY, principal=ADA)
    for caller in (BOB, Principal.local()):
        mine = await manager.get_or_create(f"chat:{caller.id}", principal=caller)
        with pytest.raises(SessionNotFoundError):
            await manager.bind_key(KEY, mine.session_id, principal=caller)
        with pytest.raises(SessionNotFoundError):
            await manager.new_session(KEY, principal=caller)
    assert await manager.resolve(KEY, principal=BOB) is None
    assert await manager.resolve(KEY, principal=ADA) is not None


async def test_an_admin_sees_the_sessions_of_the_tenant(manager: SessionManager) -> None:
    """An administrator opens, lists and finds what others of the tenant own, and nothing of another tenant (C19, A20)."""
    session = await manager.get_or_create(KEY, principal=ADA)
    await session.add_event(UserMessageEvent(content="secret"), principal=ADA)
    elsewhere = Principal("root", tenant="elsewhere", roles=frozenset({"admin"}))
    assert (await manager.open(session.session_id, principal=ROOT)).session_id == session.session_id
    assert await manager.list_sessions(principal=ROOT) == [session.session_id]
    assert [hit.session_id for hit in (await manager.search("secret", principal=ROOT)).items] == [session.session_id]
    assert await manager.get_session(session.session_id, principal=elsewhere) is None
    assert await manager.list_sessions(principal=elsewhere) == []
    assert not (await manager.search("secret", principal=elsewhere)).items


async def test_forks_of_others_are_not_deleted_with_their_parent(manager: SessionManager) -> None:
    """A deletion that would take somebody else's fork along is refused before anything is gone (A20, C11)."""
    session = await manager.get_or_create(KEY, principal=ADA)
    await session.add_event(UserMessageEvent(content="q"), principal=ADA)
    forks = [await session.fork(principal=who) for who in (ADA, ROOT, ADA)]
    with pytest.raises(SessionNotFoundError):
        await manager.delete_session(session.session_id, cascade=True, principal=ADA)
    for one in (session, *forks):
        assert await manager.get_session(one.session_id, principal=ROOT) is one
    assert await manager.delete_session(session.session_id, cascade=True, principal=ROOT)
    assert await manager.list_sessions(principal=ROOT) == []
