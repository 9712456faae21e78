"""What consolidation learns about how to work, and what an approved memory policy does to it (C26)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import InputError
from kipu.events.conversation import AgentMessageEvent, UserMessageEvent
from kipu.manager.manager import SessionManager
from kipu.memory.consolidation import Consolidated, ConsolidationPolicy
from kipu.memory.memory import Memory
from kipu.ports.memory import FactQuery
from kipu.proposals.evidence import standing_of
from kipu.proposals.target import Target
from kipu.session.patch import WORKSPACE
from kipu.wiring import open_memory
from tests.acceptance.proposals.ledger_place import PROJECT, LedgerPlace

HABIT = "Always run make test before you commit."


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture
async def memory(manager: SessionManager, store_url: str) -> AsyncIterator[Memory]:
    opened = open_memory(manager, store_url, policy=ConsolidationPolicy(keep_exchanges=0))
    yield opened
    await opened.store.close()


async def taught(manager: SessionManager, memory: Memory, key: str, *lines: str) -> Consolidated | None:
    """Let a session that works in the project say these lines, and take it into memory."""
    session = await manager.get_or_create(key)
    place: dict[str, Any] = {WORKSPACE: {"kind": "directory", "path": PROJECT}}
    await session.set_metadata(**place)
    for line in lines:
        await session.add_event(UserMessageEvent(content=line))
        await session.add_event(AgentMessageEvent(content="Noted."))
    return await memory.worker.consolidate(session.session_id)


async def test_what_is_said_in_two_sessions_is_proposed(manager: SessionManager, memory: Memory) -> None:
    """A preference that a second session confirms becomes one proposal with the events of both; nothing is in force (C26)."""
    place = LedgerPlace(manager)
    await taught(manager, memory, "cli:one", HABIT)
    assert await place.desk().all() == []
    await taught(manager, memory, "cli:two", HABIT, "I prefer short names.")
    (proposal,) = await place.desk().all()
    assert (proposal.after, proposal.before) == (f"- {HABIT}", None)
    assert proposal.target == Target.of("instruction", "project", project=PROJECT)
    assert (proposal.author.kind, proposal.status) == ("consolidation", "open")
    stands = await standing_of(manager, proposal.evidence, principal=manager.principal)
    assert [event.excerpt for event in stands] == [HABIT, HABIT]
    assert len({event.session_id for event in stands}) == 2
    await taught(manager, memory, "cli:three", HABIT, "I prefer short names.")
    assert len(await place.desk().all()) == 1, "one of a target waits at a time"
    await place.desk().approve(proposal.proposal_id, is_untried=True)
    await taught(manager, memory, "cli:four", HABIT, "I prefer short names.")
    assert (await place.desk().all())[-1].after == f"- {HABIT}\n- I prefer short names."


async def test_habit_that_was_refused_is_not_proposed_again(manager: SessionManager, memory: Memory) -> None:
    """A line that a person rejected comes back in no later proposal (C26)."""
    place = LedgerPlace(manager)
    for key in ("cli:one", "cli:two"):
        await taught(manager, memory, key, HABIT)
    await place.desk().reject((await place.desk().all())[0].proposal_id)
    for key in ("cli:three", "cli:four"):
        await taught(manager, memory, key, HABIT, "I prefer short names.")
    assert [proposal.after for proposal in await place.desk().all()] == [f"- {HABIT}", "- I prefer short names."]


async def approved(place: LedgerPlace, policy: str) -> str:
    proposal_id = await place.made(policy, kind="memory_policy")
    await place.desk().approve(proposal_id, is_untried=True)
    return proposal_id


async def test_memory_takes_in_what_its_policy_allows(manager: SessionManager, memory: Memory) -> None:
    """An approved policy ends consolidation, or bounds it to kinds; reverting it lets memory go on (C26)."""
    place = LedgerPlace(manager)
    off = await approved(place, '{"consolidates": false}')
    assert await taught(manager, memory, "cli:one", HABIT) is None
    await place.desk().revert(off)
    await approved(place, '{"kinds": ["project_fact"]}')
    await taught(manager, memory, "cli:two", HABIT, "The staging port is 8080.")
    page = await memory.facts(FactQuery(), principal=manager.principal)
    assert [fact.text for fact in page.items] == ["The staging port is 8080."]
    session = await manager.get_or_create("cli:two")
    with pytest.raises(InputError, match="nothing of the kind preference"):
        await memory.remember(session, "x y z", kind="preference", scope=None, seq=1, call_id="c1")


async def test_memory_gives_back_what_its_policy_allows(manager: SessionManager, memory: Memory) -> None:
    """An approved policy ends recall, or bounds it to what is sure; in another project it says nothing (A4, C26)."""
    place = LedgerPlace(manager)
    await taught(manager, memory, "cli:one", "The staging port is 8080.")
    session = await manager.get_or_create("cli:one")
    assert len(await memory.recalled(session, "staging port")) == 1
    for policy in ('{"recalls": false}', '{"min_confidence": 0.99}'):
        proposal_id = await approved(place, policy)
        assert await memory.recalled(session, "staging port") == []
        await place.desk().revert(proposal_id)
    assert len(await memory.recalled(session, "staging port")) == 1
