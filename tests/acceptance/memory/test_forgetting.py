"""Forgetting leaves no byte in memory's files: facts, sessions, people, also when it was cut off."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kipu.errors import FactNotFoundError
from kipu.memory.consolidation import ConsolidationPolicy
from kipu.memory.fact_text import entry_of
from kipu.memory.memory import Memory
from kipu.memory.sqlite_memory import SqliteMemory
from kipu.ports.memory import FactQuery, Space
from kipu.ports.principal import Principal
from kipu.wiring import open_manager, open_memory
from tests.acceptance.memory.conftest import say
from tests.unit.memory.kit import a_fact

ME = Principal.local()
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"

KILLED = """
import asyncio, os, signal, sys
import kipu.memory.fact_database as database
from kipu.wiring import open_manager, open_memory

async def main(url, session_id, when):
    plain = database._zero_gaps
    def dying(connection):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        plain(connection)
        os.kill(os.getpid(), signal.SIGKILL)
    database._zero_gaps = dying
    async with await open_manager(url) as manager:
        memory = open_memory(manager, url)
        await memory.store.forget_session(session_id)

asyncio.run(main(*sys.argv[1:]))
"""


def canaries(count: int, seed: int) -> list[str]:
    """Return words that compress to nothing and are in no other text."""
    chance = random.Random(seed)
    return ["".join(chance.choices(ALPHABET, k=24)) for _ in range(count)]


def found_in(folder: Path, words: list[str]) -> list[str]:
    """Return which words are in which files whose name speaks of memory."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".memory" in path.name]
    assert files
    return [f"{path.name}: {word}" for path in files for word in words if word.encode() in path.read_bytes()]


async def kept(memory: Memory, words: list[str], *, space: Space) -> list[str]:
    """Keep a fact for each word, long enough that pages fill, and return their ids."""
    ids = []
    for word in words:
        fact = await memory.add(space, f"The word {word} stands beside {'filler ' * 30}{word}", principal=ME)
        ids.append(fact.fact_id)
    return ids


async def test_forgotten_facts_leave_no_byte(tmp_path: Path) -> None:
    """Of forgotten facts nothing is in the file or beside it, while their neighbours are whole (C20)."""
    url = f"sqlite:///{tmp_path}/s.db"
    gone, stay = canaries(60, 1), canaries(60, 2)
    async with await open_manager(url) as manager:
        memory = open_memory(manager, url)
        space = Space("", "local", "user", "local")
        pairs = [word for pair in zip(gone, stay, strict=True) for word in pair]
        ids = await kept(memory, pairs, space=space)
        edited = await memory.edit(ids[0], text=f"edited {gone[0]} now", principal=ME)
        for fact_id in [edited.fact_id, *ids[2::2]]:
            await memory.forget(fact_id, principal=ME)
        assert found_in(tmp_path, gone) == []
        page = await memory.facts(FactQuery(limit=500), principal=ME)
        assert sorted(fact.text.split()[2] for fact in page.items) == sorted(stay)
        with pytest.raises(FactNotFoundError):
            await memory.forget(ids[2], principal=ME)
        await memory.store.close()
    assert found_in(tmp_path, gone) == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_killed_forgetting_is_finished_by_the_next(tmp_path: Path, when: str) -> None:
    """Killed between removing rows and zeroing what pages kept, forgetting the session again leaves nothing (C20)."""
    url = f"sqlite:///{tmp_path}/s.db"
    words, others = canaries(40, 3), canaries(40, 4)
    async with await open_manager(url) as manager:
        memory = open_memory(manager, url, policy=ConsolidationPolicy(keep_exchanges=0))
        ids = []
        for each in (words, others):
            session = await manager.open(await manager.create_session())
            await say(session, *(f"Remember that the word is {word} {'and so on ' * 12}" for word in each))
            await memory.worker.consolidate(session.session_id)
            ids.append(session.session_id)
        await memory.store.close()
    died = subprocess.run(
        [sys.executable, "-c", KILLED, url, ids[0], when], check=False, capture_output=True, timeout=60
    )
    assert died.returncode == -9, died.stderr
    async with await open_manager(url) as manager:
        memory = open_memory(manager, url)
        await memory.store.forget_session(ids[0])
        assert found_in(tmp_path, words) == []
        page = await memory.facts(FactQuery(limit=500), principal=ME)
        assert len(page.items) == len(others)
        await memory.store.close()


async def test_erasing_a_session_takes_what_it_alone_taught(tmp_path: Path) -> None:
    """`erase` of a session leaves no byte of it in memory either, and no fact that others taught goes (C20)."""
    url = f"sqlite:///{tmp_path}/s.db"
    words = canaries(8, 5)
    async with await open_manager(url) as manager:
        memory = open_memory(manager, url, policy=ConsolidationPolicy(keep_exchanges=0))
        both = "Remember that the port is 8080"
        for number in (0, 1):
            session = await manager.open(await manager.create_session(f"s{number}", {"project": "p"}))
            await say(
                session, *(f"Remember that the word is {word}" for word in words[number * 4 : number * 4 + 4]), both
            )
            await memory.worker.consolidate(session.session_id)
        assert await manager.delete_session("s0")
        assert found_in(tmp_path, [*words[:4], "s0\0"]) == []
        page = await memory.facts(FactQuery(limit=500), principal=ME)
        assert sum("8080" in fact.text for fact in page.items) == 1
        assert all(source.session_id == "s1" for fact in page.items for source in fact.sources)
        await memory.store.close()


async def test_what_pages_kept_of_forgotten_facts_is_zeroed(tmp_path: Path) -> None:
    """Facts kept in any order move about in the file as it fills; what moving left behind is zeroed too (C20)."""
    for seed in range(3):
        chance = random.Random(seed)
        memory = SqliteMemory(tmp_path / f"{seed}.memory")
        words = canaries(200, seed)
        for number, word in enumerate(words):
            fact_id = f"mem_{chance.randbytes(13).hex()}"
            filler = " ".join("".join(chance.choices("abcdefgh", k=6)) for _ in range(chance.randint(1, 40)))
            sources = ((f"s{number % 2}", number),)
            await memory.put(entry_of(a_fact(fact_id, f"{word} {filler}", sources=sources)))
        assert await memory.forget_session("s0") == 100
        await memory.close()
        assert found_in(tmp_path, words[::2]) == []
        assert len(found_in(tmp_path, words[1::2])) == 100
