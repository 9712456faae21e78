"""Erasing a person: all that is theirs, and nothing that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import AccessDeniedError, SessionForkedError, SessionHeldError
from kipu.events.conversation import UserMessageEvent
from kipu.manager.erasing.receipt import person_digest
from kipu.manager.manager import SessionManager
from kipu.ports.memory import Space
from kipu.ports.principal import Principal
from kipu.wiring import open_manager, open_memory
from tests.acceptance.erasing.crowded_session import canary, crowd, files_with
from tests.acceptance.erasing.test_erasure import erase_and_die, exported

ANNA, BEN = Principal("anna-7f3e91c2"), Principal("ben")
ROOT = Principal("root", roles=frozenset({"admin"}))


async def remember(manager: SessionManager, url: str, text: str, who: Principal) -> None:
    """Let memory keep something about a person that is in no session."""
    memory = open_memory(manager, url)
    try:
        await memory.add(Space(who.tenant, who.id, "user", who.id), text, accept=True, principal=who)
    finally:
        await memory.store.close()


async def two_people(manager: SessionManager, url: str, home: Path) -> tuple[list[str], dict[str, object]]:
    """Give two people sessions and memory; return the marks of the first, and what the second has."""
    marks: list[str] = []
    for name in ("a1", "a2"):
        marks += (await crowd(manager, url, home, session_id=name, principal=ANNA)).marks
    await crowd(manager, url, home, session_id="b1", principal=BEN)
    marks.append(canary())
    await remember(manager, url, f"Anna likes {marks[-1]}", ANNA)
    shared = await manager.open("b1", principal=BEN)
    await shared.share(ANNA.id, role="participant", principal=BEN)
    await shared.add_event(UserMessageEvent(content="from anna", sender_id=ANNA.id), principal=ANNA)
    return marks, {"b1": await exported(manager, "b1")}


async def test_an_erased_person_leaves_no_byte_in_any_file(url: str, home: Path) -> None:
    """Erasing a person takes every session they own, their grants and memory; what they said to others stands, counted (B58, C20)."""
    async with await open_manager(url) as manager:
        marks, others = await two_people(manager, url, home)
        receipt = await manager.erase_person(ANNA, prove=True, principal=ROOT)
        assert files_with(home, marks) == {}
        assert {"b1": await exported(manager, "b1")} == others
        assert {"a1", "a2"} <= set(receipt.sessions)
        assert len(receipt.sessions) == 3, "the session that keeps her grants goes too"
        assert receipt.elsewhere == {"b1": 1}
        assert receipt.person == person_digest("", ANNA.id)
        assert receipt.removed["memory"]["facts"] == 3
        assert receipt.proof is not None
        assert receipt.proof.found == 0
        assert ANNA.id not in str(receipt.to_json())
        assert [head.session_id async for head in manager.heads(principal=ANNA) if head.owner == ANNA.id] == []
        assert await manager.receipts(person=ANNA, principal=ANNA) == [receipt]
        assert await manager.receipts(principal=BEN) == []


async def test_only_administrators_and_the_person_may_erase_a_person(url: str, home: Path) -> None:
    """Somebody else, the local user and another tenant's administrator are refused, and nothing is gone (C19)."""
    async with await open_manager(url) as manager:
        await manager.create_session("a1", principal=ANNA)
        strangers = [BEN, Principal.local(), Principal("root", "acme", frozenset({"admin"}))]
        for who in strangers:
            with pytest.raises(AccessDeniedError):
                await manager.erase_person(ANNA, principal=who)
        assert await manager.store.head("a1") is not None
        assert (await manager.erase_person(ANNA, principal=ANNA)).sessions == ("a1",)


async def test_forks_of_others_are_decided_before_a_person_is_erased(url: str, home: Path) -> None:
    """Others' forks of a person's sessions refuse the erasure with their list, or stand alone, or go too (C11, C20)."""
    async with await open_manager(url) as manager:
        for session_id in ("a1", "a2"):
            await manager.create_session(session_id, principal=ANNA)
            session = await manager.open(session_id, principal=ANNA)
            await session.add_event(UserMessageEvent(content=f"said in {session_id}"), principal=ANNA)
        theirs = await (await manager.open("a1", principal=ROOT)).fork(principal=ROOT)
        mine = await (await manager.open("a2", principal=ANNA)).fork(principal=ANNA)
        with pytest.raises(SessionForkedError, match=theirs.session_id):
            await manager.erase_person(ANNA, principal=ROOT)
        receipt = await manager.erase_person(ANNA, detach=True, principal=ROOT)
        assert (set(receipt.sessions), receipt.detached) == ({"a1", "a2", mine.session_id}, (theirs.session_id,))
        kept = await manager.open(theirs.session_id, principal=ROOT)
        said = [event.content async for event in kept.events(principal=ROOT) if isinstance(event, UserMessageEvent)]
        assert said == ["said in a1"]


async def test_a_held_session_stands_when_its_person_is_erased(url: str, home: Path) -> None:
    """A session under legal hold stands whole when its owner is erased, and the receipt names it; what is not held goes (B58, C20)."""
    async with await open_manager(url) as manager:
        await crowd(manager, url, home, session_id="held", principal=ANNA)
        goes = await crowd(manager, url, home, session_id="goes", principal=ANNA)
        await manager.hold_session("held", reason="case 12", principal=ROOT)
        before = await exported(manager, "held")
        receipt = await manager.erase_person(ANNA, principal=ROOT)
        assert receipt.held == ("held",)
        assert "goes" in receipt.sessions
        assert await exported(manager, "held") == before
        leftover = {name: marks for name, marks in files_with(home, goes.marks).items() if "memory" not in name}
        assert leftover == {}
        with pytest.raises(SessionHeldError):
            await manager.erase_session("held", principal=ROOT)


@pytest.mark.parametrize("at", [4, 9, 14])
async def test_a_killed_erasure_of_a_person_is_finished(url: str, home: Path, at: int) -> None:
    """Killed at a step, the erasure of a person is ended by whoever opens the store next, with one receipt (C20)."""
    async with await open_manager(url) as manager:
        marks, others = await two_people(manager, url, home)
    erase_and_die(url, f"person:{ANNA.id}", at=at, before=False)
    async with await open_manager(url) as manager:
        receipts = await manager.receipts() or [await manager.erase_person(ANNA, principal=ROOT)]
        assert {"b1": await exported(manager, "b1")} == others
        assert [receipt.kind for receipt in receipts] == ["person"]
    assert files_with(home, marks) == {}


@pytest.mark.parametrize("name", ["x" * 1500, "tab\tbed", "   "], ids=["long", "control", "blank"])
async def test_a_person_whose_name_is_in_no_key_can_be_erased(home: Path, name: str) -> None:
    """An erasure ends, and none is left to be finished, whatever the owner's name; such a person has no proposals (B58, C20)."""
    url, person, mark = f"sqlite:///{home}/store/sessions.db", Principal(name), canary()
    async with await open_manager(url) as manager:
        for session_id in ("one", "two"):
            await manager.create_session(session_id, principal=person)
            await manager.save_event(session_id, UserMessageEvent(content=mark), principal=person)
        assert await manager.delete_session("one", principal=person)
        receipt = await manager.erase_person(person, principal=person)
        assert receipt.sessions == ("two",)
    async with await open_manager(url) as manager:
        assert manager.finished == []
        assert files_with(home, [mark]) == {}
