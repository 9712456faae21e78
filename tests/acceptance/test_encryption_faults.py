"""What goes wrong elsewhere with encrypted sessions, tried here: wrong keys that pop, lifetimes that tear pairs, rows that move."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import apsw
import pytest

from kipu import SessionManager, ToolCallEvent, ToolResultEvent, UserMessageEvent, open_manager
from kipu.errors import DataKeyMissingError, KeyUnavailableError, KipuError, SealBrokenError
from kipu.events.conversation import AgentMessageEvent
from kipu.ports.store import SessionQuery
from kipu.security.key_file import key_line
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.host import SystemClock, SystemEntropy, this_process_owner
from kipu.stores.memory import MemoryStore
from kipu.stores.wrapper import innermost
from kipu.testing.validators import TARGETS, validate

KEY_NAME = "KIPU_TEST_KEY"


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_NAME, key_line(bytes(range(32))).strip())


async def talk(manager: SessionManager, key: str, *, turns: int = 3) -> str:
    """Hold a conversation in which each turn has a call and its result."""
    session = await manager.get_or_create(key)
    for number in range(turns):
        await session.add_event(UserMessageEvent(content=f"question {number}"))
        async with session.turn() as turn:
            call = ToolCallEvent(tool_name="cat", tool_call_id=f"c{number}", tool_input={"n": number})
            await turn.add_events([AgentMessageEvent(content="looking"), call])
            await turn.add_event(ToolResultEvent(tool_call_id=f"c{number}", result=f"result {number}"))
            await turn.add_event(AgentMessageEvent(content=f"answer {number}"))
    return session.session_id


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/store.db?encrypt=env:{KEY_NAME}"


def vault(folder: Path, sql: str, *values: Any) -> None:
    """Change the vault as somebody who has the file does."""
    connection = apsw.Connection(str(folder / "store.db.keys"))
    connection.execute(sql, values)
    connection.close()


async def rows_of(folder: Path) -> int:
    """Return how many events the database holds."""
    connection = apsw.Connection(str(folder / "store.db"))
    try:
        return int(connection.execute("SELECT count(*) FROM events").get)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM data_keys WHERE session_id = ?", "UPDATE data_keys SET wrapped = zeroblob(60) WHERE session_id = ?"],
)
async def test_a_session_without_its_key_is_neither_popped_nor_emptied(sql: str, tmp_path: Path) -> None:
    """Whatever is asked of it, reading, opening, receiving, it is an error every time, and no event goes (A26, A50, C20, EN-12)."""
    async with await open_manager(url_of(tmp_path)) as manager:
        lost, kept = await talk(manager, "cli:lost"), await talk(manager, "cli:kept")
    before = await rows_of(tmp_path)
    shutil.copy(tmp_path / "store.db.keys", tmp_path / "whole")
    vault(tmp_path, sql, lost)
    for _ in range(3):
        async with await open_manager(url_of(tmp_path)) as manager:
            works: list[Awaitable[object]] = [
                manager.open(lost),
                manager.get_or_create("cli:lost"),
                manager.receive("cli:lost", UserMessageEvent(content="hello?")),
                manager.store.head(lost),
                manager.store.read(lost),
            ]
            for work in works:
                with pytest.raises((DataKeyMissingError, KeyUnavailableError)):
                    await work
            heads = {head.session_id for head in (await manager.list(SessionQuery())).items}
            assert {lost, kept} <= heads
            assert "answer 2" in str(await (await manager.open(kept)).get_context_for_llm())
        assert await rows_of(tmp_path) == before
    shutil.copy(tmp_path / "whole", tmp_path / "store.db.keys")
    async with await open_manager(url_of(tmp_path)) as manager:
        session = await manager.open(lost)
        assert "answer 2" in str(await session.get_context_for_llm())
        assert await manager.store.verify() == []


async def test_rows_of_the_vault_that_were_moved_open_nothing(tmp_path: Path) -> None:
    """Two sessions' data keys exchanged, and their blobs' places too, are errors for both, never the other's text (C20, EN-6, EN-7)."""
    async with await open_manager(url_of(tmp_path)) as manager:
        one, two = await talk(manager, "cli:one"), await talk(manager, "cli:two")
        digests = [await manager.store.put_blob(name, name.encode() * 50) for name in (one, two)]
    vault(tmp_path, "UPDATE data_keys SET session_id = '?' WHERE session_id = ?", one)
    vault(tmp_path, "UPDATE data_keys SET session_id = ? WHERE session_id = ?", one, two)
    vault(tmp_path, "UPDATE data_keys SET session_id = ? WHERE session_id = '?'", two)
    async with await open_manager(url_of(tmp_path)) as manager:
        for name, digest in zip((one, two), digests, strict=True):
            with pytest.raises(KeyUnavailableError):
                await manager.store.read(name)
            with pytest.raises(KipuError):
                await manager.store.get_blob(name, digest)
        damage = await manager.store.verify()
        assert {each.session_id for each in damage} >= {one, two}


@pytest.mark.parametrize("hidden", ["tool_call", "tool_result", "agent_message"])
async def test_a_pair_of_which_half_is_hidden_is_none_that_a_model_sees(hidden: str) -> None:
    """Where broken events are left out by choice, every target's window is still one that its provider accepts (A2, A35, EN-13)."""
    async with await open_manager(f"memory://?encrypt=env:{KEY_NAME}") as manager:
        session_id = await talk(manager, "cli:1")
        store, memory = manager.store, innermost(manager.store)
        assert isinstance(store, EncryptedStore)
        assert isinstance(memory, MemoryStore)
        events = memory._sessions[session_id].events
        at = next(index for index, event in enumerate(events) if event.record.event_type == hidden)
        cut = events[at].record.body[:-40] + b'"}'
        events[at] = events[at]._replace(record=events[at].record._replace(body=cut))
        lenient = SessionManager(
            EncryptedStore(store.inner, store.store_keys, hide_broken=True),
            clock=SystemClock(),
            entropy=SystemEntropy(),
            owner=this_process_owner("lenient"),
        )
        session = await lenient.open(session_id)
        assert len(await session.get_full_history()) == len(events) - 1
        for target in TARGETS:
            rendering = await session.render(target)
            assert validate(target, rendering.payload, may_end_with_model=True) == []
        assert [damage.seq for damage in await store.verify()] == [events[at].seq]
        with pytest.raises(SealBrokenError):
            await (await manager.open(session_id)).get_full_history()


async def test_nothing_of_a_sealed_session_expires(tmp_path: Path) -> None:
    """Ten years later every event opens: a seal has no lifetime, so none can take one half of a pair (A50, C20)."""

    class Later:
        def now_us(self) -> int:
            return SystemClock().now_us() + 10 * 365 * 86_400_000_000

    async with await open_manager(url_of(tmp_path)) as manager:
        session_id = await talk(manager, "cli:1")
        before = [event.seq for event in await manager.store.read(session_id)]
    async with await open_manager(url_of(tmp_path), clock=Later()) as manager:
        assert [event.seq for event in await manager.store.read(session_id)] == before
        session = await manager.open(session_id)
        for target in TARGETS:
            assert validate(target, (await session.render(target)).payload, may_end_with_model=True) == []
