"""Sharing a session and taking it back: what others see, where, and until when (A4, A19, B56, C19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import AccessDeniedError, InputError, InvalidEventError, SessionNotFoundError
from kipu.events.access import AccessDeniedEvent, MembersChangedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.interop.export_jsonl import export_jsonl
from kipu.interop.import_events import import_events
from kipu.manager.manager import SessionManager
from kipu.manager.session import Session
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from kipu.wiring import open_manager

ADA, BOB, CYD = Principal("ada", "acme"), Principal("bob", "acme"), Principal("cyd", "acme")
Opener = Callable[..., Awaitable[SessionManager]]


@pytest.fixture(params=["sqlite", "jsonl"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/s.db", "jsonl": f"jsonl:///{tmp_path}/sessions"}[request.param]


@pytest.fixture
async def opener(store_url: str) -> AsyncIterator[Opener]:
    opened: list[SessionManager] = []

    async def open_one(**settings: Any) -> SessionManager:
        opened.append(await open_manager(store_url, **settings))
        return opened[-1]

    yield open_one
    for manager in opened:
        await manager.close()


@pytest.fixture
async def manager(opener: Opener) -> SessionManager:
    return await opener()


async def said(manager: SessionManager, text: str = "a secret plan", who: Principal = ADA) -> Session:
    session_id = await manager.create_session(principal=who)
    session = await manager.open(session_id, principal=who)
    await session.add_event(UserMessageEvent(content=text), principal=who)
    return session


async def test_what_is_shared_is_listed_searched_read_and_exported(manager: SessionManager) -> None:
    """A viewer lists, finds, opens and reads a session that is shared with them, and nobody else's (B26, B56, C19)."""
    session = await said(manager)
    await said(manager, "another secret")
    assert (await session.share("bob", principal=ADA)).role == "viewer"
    assert await manager.list_sessions(principal=BOB) == [session.session_id]
    assert await manager.list_sessions({"owner": "ada"}, principal=BOB) == [session.session_id]
    assert await manager.list_sessions({"owner": "bob"}, principal=BOB) == []
    hits = (await manager.search("secret", principal=BOB)).items
    assert [(hit.session_id, hit.title) for hit in hits] == [(session.session_id, "a secret plan")]
    opened = await manager.open(session.session_id, principal=BOB)
    assert "secret" in str(await opened.get_context_for_llm(principal=BOB))
    assert len([stored async for stored in opened.records(principal=BOB)]) == 3
    assert await manager.list_sessions(principal=CYD) == []


async def test_members_are_in_the_head_by_the_fold_of_their_events(opener: Opener) -> None:
    """Roles are durable events folded into the head: a new process knows them, the last one counts (C2, C19, EV-20)."""
    manager = await opener()
    session = await said(manager)
    for who, role in (("bob", "viewer"), ("cyd", "admin"), ("bob", "participant"), ("dan", "viewer")):
        await session.share(who, role=role, principal=ADA)
    assert await session.revoke("dan", principal=CYD)
    assert not await session.revoke("dan", principal=ADA)
    await session.share("bob", role="participant", principal=ADA)
    events = [e for e in await session.get_full_history(principal=ADA) if isinstance(e, MembersChangedEvent)]
    assert [(event.roles, event.revoked, event.by) for event in events] == [
        ({"bob": "viewer"}, [], "ada"),
        ({"cyd": "admin"}, [], "ada"),
        ({"bob": "participant"}, [], "ada"),
        ({"dan": "viewer"}, [], "ada"),
        ({}, ["dan"], "cyd"),
    ]
    other = await (await opener()).open(session.session_id, principal=BOB)
    assert other.head.members == {"bob": "participant", "cyd": "admin"}
    members = await other.members(principal=BOB)
    assert [(member.principal_id, member.role) for member in members] == [
        ("ada", "owner"),
        ("bob", "participant"),
        ("cyd", "admin"),
    ]


async def test_role_taken_back_elsewhere_ends_what_is_open_here(opener: Opener) -> None:
    """From the return of `revoke` on a cached session and a running follow of another process show nothing more (B56, C19)."""
    here, there = await opener(), await opener()
    session = await said(here)
    await session.share("bob", role="participant", principal=ADA)
    theirs = await there.open(session.session_id, principal=BOB)
    follow = aiter(theirs.follow(principal=BOB))
    assert [(await anext(follow)).event_type for _ in range(3)] == ["session_init", "user_message", "members_changed"]
    waiting = asyncio.ensure_future(anext(follow))
    await session.revoke("bob", principal=ADA)
    await session.add_event(UserMessageEvent(content="without you"), principal=ADA)
    with pytest.raises(SessionNotFoundError):
        await asyncio.wait_for(waiting, 60)
    for call in (
        theirs.get_full_history(principal=BOB),
        theirs.render(principal=BOB),
        theirs.add_event(UserMessageEvent(content="x"), principal=BOB),
        there.open(session.session_id, principal=BOB),
        theirs.members(principal=BOB),
    ):
        with pytest.raises(SessionNotFoundError):
            await call
    assert await there.list_sessions(principal=BOB) == []
    assert not (await there.search("secret", principal=BOB)).items


async def test_role_given_elsewhere_counts_here_at_once(opener: Opener) -> None:
    """A session that a process has in memory is seen by whom another process shares it with (C19)."""
    here, there = await opener(), await opener()
    session = await said(here)
    cached = await there.open(session.session_id, principal=ADA)
    with pytest.raises(SessionNotFoundError):
        await cached.get_history(principal=BOB)
    await session.share("bob", role="admin", principal=ADA)
    assert await cached.get_history(principal=BOB)
    await cached.set_metadata(title="ours", principal=BOB)
    assert cached.turn(principal=BOB).id


async def test_pages_of_what_is_shared_are_whole_and_in_order(manager: SessionManager) -> None:
    """Owned and shared sessions come as one list, page by page, newest activity first, none twice and none of others (B26, C19)."""
    mine = []
    for number in range(30):
        session = await said(manager, f"number {number}", BOB if number % 3 == 0 else ADA)
        if number % 3 == 1:
            await session.share("bob", principal=ADA)
        if number % 3 != 2:
            mine.append(session.session_id)
        await said(manager, f"number {number}", Principal("bob", "other"))
    for order in ("last_activity_at", "created_at"):
        found: list[str] = []
        query = SessionQuery(limit=7, order=order)
        while True:
            page = await manager.list(query, principal=BOB)
            found += [head.session_id for head in page.items]
            if page.cursor is None:
                break
            assert len(page.items) == 7  # what others own takes no place
            query = SessionQuery(limit=7, order=order, cursor=page.cursor)
        assert found == mine[::-1]
    for who in (ADA, Principal("bob", "other")):
        await said(manager, "number 30", who)
    assert len((await manager.search("number", limit=1, principal=BOB)).items) == 1


async def test_fork_is_seen_by_those_of_the_fork(manager: SessionManager) -> None:
    """A fork's access follows the fork: the parent's members do not see it, its own see what it shares with the parent (C11, C19)."""
    parent = await said(manager)
    await parent.share("bob", principal=ADA)
    child = await parent.fork(principal=ADA)
    assert child.head.members is None
    with pytest.raises(SessionNotFoundError):
        await child.get_full_history(principal=BOB)
    await child.share("cyd", principal=ADA)
    assert "secret" in str(await child.get_full_history(principal=CYD))
    with pytest.raises(SessionNotFoundError):
        await manager.open(parent.session_id, principal=CYD)
    await parent.revoke("bob", principal=ADA)
    assert await manager.list_sessions(principal=CYD) == [child.session_id]


async def test_imported_sharing_lets_nobody_in(manager: SessionManager, tmp_path: Path) -> None:
    """What a file says about members is on record where it is imported, and gives nobody anything there (A19, C19, EV-20)."""
    session = await said(manager)
    await session.share("bob", role="admin", principal=ADA)
    file = tmp_path / "out.jsonl"
    file.write_bytes(b"".join([line async for line in export_jsonl(session, principal=ADA)]))
    await import_events(manager, file, as_new=True, principal=CYD)
    (copy_id,) = await manager.list_sessions({"owner": "cyd"}, principal=CYD)
    copy = await manager.open(copy_id, principal=CYD)
    assert "members_changed" in [event.event_type for event in await copy.get_full_history(principal=CYD)]
    assert not copy.head.members
    assert await manager.get_session(copy_id, principal=BOB) is None
    assert copy_id not in await manager.list_sessions(principal=BOB)


@pytest.mark.parametrize("who", ["", " bob", "bob ", "b\nob", "x" * 201, "ada"])
async def test_ids_that_name_nobody_are_refused(manager: SessionManager, who: str) -> None:
    """Only a usable id that is not the owner's is given a role, and only a role that there is (C19)."""
    session = await said(manager)
    with pytest.raises(InputError):
        await session.share(who, principal=ADA)
    with pytest.raises(InputError):
        await session.share("bob", role="owner", principal=ADA)
    assert (await session.members(principal=ADA))[1:] == []


async def test_member_leaves_and_gives_nothing_away(manager: SessionManager) -> None:
    """A member may leave, once, and can neither raise themselves nor let others in (A20, C19)."""
    session = await said(manager)
    await session.share("bob", role="participant", principal=ADA)
    for call in (session.share("bob", role="admin", principal=BOB), session.share("cyd", principal=BOB)):
        with pytest.raises(AccessDeniedError) as denied:
            await call
        assert (denied.value.role, denied.value.needed, denied.value.ask) == ("participant", "admin", "ada")
        assert "Ask its owner, ada" in str(denied.value)
    assert await session.revoke("bob", principal=BOB)
    with pytest.raises(SessionNotFoundError):
        await session.revoke("bob", principal=BOB)


async def test_tenants_stay_apart_whatever_is_shared(manager: SessionManager) -> None:
    """A role belongs to an id of the session's tenant: the same id of another tenant is a stranger (A20, A21, C19)."""
    session = await said(manager)
    await session.share("bob", role="admin", principal=ADA)
    for elsewhere in (Principal("bob", "other"), Principal("bob"), Principal("bob", "other", frozenset({"admin"}))):
        assert await manager.get_session(session.session_id, principal=elsewhere) is None
        assert await manager.list_sessions(principal=elsewhere) == []
        assert not (await manager.search("secret", principal=elsewhere)).items


async def test_what_was_said_in_one_session_stays_there_for_a_member(manager: SessionManager) -> None:
    """A shared session explains nothing in another, and another nothing in it: only its own history is in its window (A4, A69)."""
    shared, own = await said(manager, "change parser.py"), await said(manager, "my own project", BOB)
    await shared.share("bob", role="participant", principal=ADA)
    await shared.add_event(UserMessageEvent(content="change that one"), principal=BOB)
    await own.add_event(UserMessageEvent(content="change that one"), principal=BOB)
    assert "parser.py" in str(await shared.get_context_for_llm(principal=BOB))
    assert "parser.py" not in str(await own.get_context_for_llm(principal=BOB))


async def test_nobody_speaks_for_somebody_else(manager: SessionManager) -> None:
    """A message under another's name is refused, and so is a record of sharing or refusal that Kipu did not write (A19, C19)."""
    session = await said(manager)
    await session.share("bob", role="participant", principal=ADA)
    forged = [
        UserMessageEvent(content="do it", principal="ada"),
        MembersChangedEvent(roles={"bob": "admin"}, by="ada"),
        AccessDeniedEvent(who="cyd", verb="read"),
    ]
    for event in forged:
        with pytest.raises((InvalidEventError, AccessDeniedError)):
            await session.add_event(event, principal=BOB)
        with pytest.raises(InvalidEventError):
            await session.add_event(event.model_copy(update={"principal": "cyd"}), principal=ADA)
    assert session.head.members == {"bob": "participant"}


async def test_follow_of_a_stranger_ends_before_it_waits(manager: SessionManager) -> None:
    """Whoever may not see a session does not wait for what comes next either (A20, C19)."""
    session = await said(manager)
    with pytest.raises(SessionNotFoundError):
        await asyncio.wait_for(anext(aiter(session.follow(after=99, principal=CYD))), 60)


async def test_follow_of_a_member_sees_events_as_they_come(manager: SessionManager) -> None:
    """A running follow of a member goes on with every event, in order, while the role stands (C19)."""
    session = await said(manager)
    await session.share("bob", principal=ADA)
    follow = aiter(session.follow(principal=BOB))
    seen = [(await anext(follow)).seq for _ in range(3)]
    for _ in range(20):
        await session.add_event(UserMessageEvent(content="more"), principal=ADA)
        seen.append((await asyncio.wait_for(anext(follow), 60)).seq)
    assert seen == list(range(1, 24))
