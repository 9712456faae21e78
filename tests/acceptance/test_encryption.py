"""Sessions over an encrypted store, through the manager and through copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kipu import SessionManager, ToolCallEvent, ToolResultEvent, UserMessageEvent, open_manager
from kipu.errors import KeyUnavailableError, StoreSealedError
from kipu.events.conversation import AgentMessageEvent
from kipu.manager.copying import copy_store
from kipu.ports.store import EventStore, SessionQuery
from kipu.security.key_file import add_key, create_key_file, file_keys, key_line
from kipu.security.keys import KeyRing
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.host import SystemClock, SystemEntropy, this_process_owner
from kipu.testing.conformance.erasing import files_with
from kipu.testing.conformance.subject import state_of
from kipu.wiring import open_store

STORES = ["sqlite:///{}/store.db", "jsonl:///{}/store"]
CANARY = "b51f5cfd8a07c3e2d9"
BIG = f"{CANARY}-result " * 9000


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIPU_TEST_KEY", key_line(bytes(range(32))).strip())
    monkeypatch.setenv("KIPU_OTHER_KEY", key_line(bytes(range(1, 33))).strip())


async def chat(manager: SessionManager) -> str:
    """Hold a conversation and return its session's id."""
    session = await manager.get_or_create("telegram:42")
    await session.set_metadata(title=f"about {CANARY}", topic=f"topic {CANARY}")
    await session.add_event(UserMessageEvent(content=f"{CANARY} 日本語 please restore the stone"))
    async with session.turn() as turn:
        await turn.add_events(
            [AgentMessageEvent(content="looking"), ToolCallEvent(tool_name="cat", tool_call_id="c1", tool_input={})]
        )
        await turn.add_event(ToolResultEvent(tool_call_id="c1", result=BIG))
        await turn.add_event(AgentMessageEvent(content="done"))
    return session.session_id


@pytest.mark.parametrize("url", STORES)
async def test_a_session_works_the_same_over_an_encrypted_store(url: str, tmp_path: Path) -> None:
    """Window, search in any script, big results, lists and forks work over an encrypted store, and no file tells of it (B55, B60, C20)."""
    place = f"{url.format(tmp_path)}?encrypt=env:KIPU_TEST_KEY"
    async with await open_manager(place) as manager:
        session_id = await chat(manager)
        assert (await manager.search("resto* the stone")).items
        await (await manager.open(session_id)).fork(3, title=f"fork {CANARY}")
    for mark in (CANARY, "looking", "日本", "restore"):
        assert files_with(tmp_path, mark) == []
    async with await open_manager(place) as manager:
        session = await manager.open(session_id)
        shown = str(await session.get_context_for_llm())
        assert all(text in shown for text in (CANARY, "looking", "done", "日本語"))
        for query in ("日本", "本", "resto*", "looking", f"{CANARY}-result"):
            assert [hit.session_id for hit in (await manager.search(query)).items][-1] == session_id, query
        heads = (await manager.list(SessionQuery(metadata={"topic": f"topic {CANARY}"}))).items
        assert f"about {CANARY}" in {head.title for head in heads}
        assert {head.title for head in (await manager.list()).items} == {f"about {CANARY}", f"fork {CANARY}"}


@pytest.mark.parametrize("url", STORES)
async def test_a_wrong_key_pops_and_empties_nothing(url: str, tmp_path: Path) -> None:
    """Opened with a wrong key or none, a session is an error every time, and afterwards it is whole (A50, C20)."""
    place = url.format(tmp_path)
    async with await open_manager(f"{place}?encrypt=env:KIPU_TEST_KEY") as manager:
        session_id = await chat(manager)
        before = await state_of(manager.store, session_id)
    for _ in range(2):
        with pytest.raises(KeyUnavailableError):
            await open_manager(f"{place}?encrypt=env:KIPU_OTHER_KEY")
        with pytest.raises(StoreSealedError):
            await open_manager(place)
    async with await open_manager(f"{place}?encrypt=env:KIPU_TEST_KEY") as manager:
        assert await state_of(manager.store, session_id) == before
        assert await manager.store.verify() == []


async def test_a_store_is_encrypted_and_decrypted_by_copying(tmp_path: Path) -> None:
    """A copy into an encrypted store and one back out of it have the same events, heads, keys, outcomes and blobs (C22, B55)."""
    stores: list[EventStore] = []
    for name in ("plain.db", "sealed.db?encrypt=env:KIPU_TEST_KEY&chain=on", "again.db"):
        stores.append(await open_store(f"sqlite:///{tmp_path}/{name}"))
    plain, sealed, again = stores
    owner = this_process_owner("copy")
    manager = SessionManager(plain, clock=SystemClock(), entropy=SystemEntropy(), owner=owner)
    session_id = await chat(manager)
    await manager.receive("slack:C1", UserMessageEvent(content="answer me", source_message_id="m1"))
    for source, target in ((plain, sealed), (sealed, again)):
        await copy_store(source, target, owner=owner)
    ids = [head.session_id for head in (await plain.list(SessionQuery())).items]
    assert len(ids) == 2
    for each in ids:
        assert (await state_of(sealed, each))[1:] == (await state_of(plain, each))[1:]
        assert (await state_of(again, each))[1:] == (await state_of(plain, each))[1:]
        for store in (sealed, again):
            ours = await store.outcomes(each), await store.keys(each)
            assert ours == (await plain.outcomes(each), await plain.keys(each))
    assert [(await store.head(session_id) or _none()).title for store in stores] == [f"about {CANARY}"] * 3
    for store in stores:
        await store.close()


async def test_a_key_file_is_rotated_while_a_session_goes_on(tmp_path: Path) -> None:
    """A key added to the file wraps all after `rewrap`; the session goes on, and the old key alone opens nothing (B55, C20)."""
    key = tmp_path / "key"
    create_key_file(key, entropy=SystemEntropy())
    old = key.read_text()
    place = f"sqlite:///{tmp_path}/store.db?encrypt=file:{key}"
    async with await open_manager(place) as manager:
        session_id = await chat(manager)
    add_key(key, entropy=SystemEntropy())
    async with await open_manager(place) as manager:
        assert isinstance(manager.store, EncryptedStore)
        ring = manager.store.store_keys
        assert isinstance(ring, KeyRing)
        session = await manager.open(session_id)
        assert await ring.rewrap() == 2
        assert set(await ring.status()) == {file_keys(key, entropy=SystemEntropy()).current}
        await session.add_event(UserMessageEvent(content="after"))
    new = key.read_text()
    key.write_text(old)
    with pytest.raises(KeyUnavailableError):
        await open_manager(place)
    key.write_text(new)
    async with await open_manager(place) as manager:
        assert "after" in str(await (await manager.open(session_id)).get_context_for_llm())


def _none() -> Any:
    raise AssertionError("there is no such session")
