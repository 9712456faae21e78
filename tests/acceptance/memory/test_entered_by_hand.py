"""What a person entered rests on that person, whatever the logs say too; and pages of a search leave nothing out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kipu.manager.manager import SessionManager
from kipu.memory.consolidation import ConsolidationPolicy
from kipu.memory.memory import Memory
from kipu.ports.memory import FactQuery, Space
from kipu.ports.principal import Principal
from kipu.wiring import open_manager, open_memory, open_redactor
from tests.acceptance.memory.conftest import Opened, say, texts

ME = Principal.local()
WHOLE = ConsolidationPolicy(keep_exchanges=0)


async def taught(manager: SessionManager, memory: Memory, line: str) -> str:
    """Let a new session of the project teach the line, and return its id."""
    session = await manager.open(await manager.create_session(None, {"project": "p"}))
    await say(session, line)
    await memory.worker.consolidate(session.session_id)
    return session.session_id


async def project(manager: SessionManager, memory: Memory) -> Space:
    """Return the space of the project, as what is learned in it has it."""
    session_id = await taught(manager, memory, "The mascot is Quipi.")
    (fact,) = (await memory.facts(FactQuery(), principal=ME)).items
    await manager.delete_session(session_id)
    return fact.space


async def test_erasing_a_session_that_repeated_it_leaves_what_a_person_entered(opened: Opened) -> None:
    """A session that says what somebody entered by hand takes nothing of theirs along when it is erased (A57, C20)."""
    manager, memory = await opened(policy=WHOLE)
    space = await project(manager, memory)
    entered = await memory.add(space, "The staging port is 8080.", principal=ME)
    session_id = await taught(manager, memory, "The staging port is 8080.")
    assert await texts(memory) == ["The staging port is 8080."]
    assert await manager.delete_session(session_id)
    assert (await memory.fact(entered.fact_id, principal=ME)).status == "active"
    assert await texts(memory) == ["The staging port is 8080."]


async def test_what_a_person_says_too_is_theirs_from_then_on(opened: Opened) -> None:
    """Entered by hand after a session taught it, a fact is the person's: no session replaces it or takes it along (A57, C20)."""
    manager, memory = await opened(policy=WHOLE)
    space = await project(manager, memory)
    first = await taught(manager, memory, "The staging port is 8080.")
    entered = await memory.add(space, "The staging port is 8080.", principal=ME)
    assert entered.origin == "person"
    assert await texts(memory) == ["The staging port is 8080."]
    second = await taught(manager, memory, "The staging port is 9090.")
    assert (await memory.fact(entered.fact_id, principal=ME)).status == "active"
    for session_id in (first, second):
        assert await manager.delete_session(session_id)
    assert await texts(memory) == ["The staging port is 8080."]


async def test_forgetting_what_a_person_says_too_forgets_what_was_learned(opened: Opened) -> None:
    """Forgotten, a fact that a session taught and a person entered is gone in both forms (A57)."""
    manager, memory = await opened(policy=WHOLE)
    space = await project(manager, memory)
    await taught(manager, memory, "The staging port is 8080.")
    entered = await memory.add(space, "The staging port is 8080.", principal=ME)
    await memory.forget(entered.fact_id, principal=ME)
    assert await texts(memory, statuses=None) == []


async def test_pages_of_a_search_leave_nothing_out(opened: Opened) -> None:
    """Where some facts have the words in another order, following the cursor gives each that holds them once, page by page."""
    _, memory = await opened()
    space = Space("", "local", "user", "local")
    for number in range(12):
        words = "alpha beta" if number % 4 else "beta alpha"
        await memory.add(space, f"{words} is number {number}", accept=True, principal=ME)
    for limit in (1, 2, 3, 4, 5, 50):
        found, query = list[str](), FactQuery(limit=limit)
        while True:
            page = await memory.search("alpha-beta", query, principal=ME)
            assert len(page.items) <= limit
            found += [fact.text for fact in page.items]
            if page.cursor is None:
                break
            query = replace(query, cursor=page.cursor)
        assert found == [f"alpha beta is number {number}" for number in range(11, 0, -1) if number % 4], limit


async def test_no_secret_stays_in_what_a_fact_gives_a_value_to(tmp_path: Path) -> None:
    """A secret in the words before "is" is in no part of memory, as it is in no text of it (C21)."""
    secret, url = "AKIAZQ3DRSTUVWXY2345", f"sqlite:///{tmp_path}/s.db"
    async with await open_manager(url, redactor=open_redactor({})) as manager:
        memory = open_memory(manager, url)
        session = await manager.open(await manager.create_session(None, {"project": "p"}))
        text = f"the key {secret} is for prod-1"
        await memory.add(Space("", "local", "user", "local"), text, principal=ME)
        await memory.remember(session, text, kind="project_fact", scope=None, seq=1, call_id="c1")
        assert await texts(memory) == ["the key [redacted:aws-access-key] is for prod-1"] * 2
        await memory.store.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if secret.lower() in path.read_bytes().decode("latin-1").lower()] == []
