"""JSONL logs as other programs and bad days leave them, seen through the manager: what can be read is there for its owner."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from kipu.errors import SessionNotFoundError, StoreUnavailableError
from kipu.events.boundary import MetadataChangedEvent
from kipu.events.conversation import UserMessageEvent
from kipu.ports.principal import Principal
from kipu.wiring import open_manager

TEXTS = [str(number) for number in range(10)]


async def made(folder: Path) -> tuple[str, Path]:
    """Make a session of ten messages under a key; return the store's URL and the log's path."""
    url = f"jsonl:///{folder}/sessions"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        for text in TEXTS:
            await session.add_event(UserMessageEvent(content=text))
    return url, folder / "sessions" / session.session_id / "000001.jsonl"


async def shown(url: str) -> list[str]:
    """Return the texts of the window of the session that the key leads to."""
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        return [message["content"] for message in await session.get_context_for_llm()]


def without_index(folder: Path) -> None:
    """Remove the cache."""
    for path in (folder / "sessions").glob("index.sqlite*"):
        path.unlink()


@pytest.mark.parametrize("indexed", [True, False])
async def test_line_ends_of_another_system_are_line_ends(tmp_path: Path, *, indexed: bool) -> None:
    """A log whose ends of lines became CR LF is read whole, and is gone on with (A53)."""
    url, log = await made(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n"))
    if not indexed:
        without_index(tmp_path)
    assert await shown(url) == TEXTS
    async with await open_manager(url) as manager:
        await (await manager.get_or_create("cli:p")).add_event(UserMessageEvent(content="more"))
        assert await manager.store.verify() == []
    assert await shown(url) == [*TEXTS, "more"]


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_damaged_first_line_hides_no_session_from_its_only_user(tmp_path: Path, *, indexed: bool) -> None:
    """With the record that names its owner the session loses that record alone: it is listed, opened, found by its key (A50, A53)."""
    url, log = await made(tmp_path)
    data = bytearray(log.read_bytes())
    data[40] ^= 1
    log.write_bytes(data)
    if not indexed:
        without_index(tmp_path)
    assert await shown(url) == TEXTS
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        assert await manager.list_sessions() == [session.session_id] == [log.parent.name]
        assert session.created_at <= session.updated_at
        with pytest.raises(SessionNotFoundError):
            await manager.open(session.session_id, principal=Principal("somebody"))
        assert await manager.list_sessions(principal=Principal("somebody")) == []


async def test_an_endless_line_is_not_held_in_memory(tmp_path: Path) -> None:
    """What has no end costs no memory to pass over, however long it is, and hides nothing (situations 6 and 52)."""
    url, log = await made(tmp_path)
    os.truncate(log, log.stat().st_size + 96 * 1024 * 1024)
    tracemalloc.start()
    try:
        assert await shown(url) == TEXTS
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * 1024 * 1024


async def test_a_store_folder_that_is_away_is_not_a_store_without_sessions(tmp_path: Path) -> None:
    """Where the folder was moved while it was open, reads and writes are errors of the store, and what was there stays (A50)."""
    url, _ = await made(tmp_path)
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        (tmp_path / "sessions").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailableError):
            await session.add_event(UserMessageEvent(content="lost?"))
        with pytest.raises(StoreUnavailableError):
            await session.get_full_history()
        with pytest.raises(StoreUnavailableError):
            await manager.list_sessions()
    assert not (tmp_path / "sessions").exists()
    assert await shown(f"jsonl:///{tmp_path}/elsewhere") == TEXTS


async def test_a_database_that_was_moved_while_open_acknowledges_nothing(tmp_path: Path) -> None:
    """Where its name leads to another file an append is refused: two logs under one name would lose it, and ruin both (C16)."""
    url = f"sqlite:///{tmp_path}/a.db"
    async with await open_manager(url) as manager:
        session = await manager.get_or_create("cli:p")
        await session.add_event(UserMessageEvent(content="kept"))
        for ending in ("", "-wal", "-shm"):
            (tmp_path / f"a.db{ending}").rename(tmp_path / f"b.db{ending}")
        with pytest.raises(StoreUnavailableError, match="moved"):
            await session.add_event(UserMessageEvent(content="refused"))
        async with await open_manager(url) as other:
            await (await other.get_or_create("cli:p")).add_event(UserMessageEvent(content="new"))
        with pytest.raises(StoreUnavailableError, match="moved"):
            await session.add_event(UserMessageEvent(content="refused"))
    assert await shown(url) == ["new"]
    assert await shown(f"sqlite:///{tmp_path}/b.db") == ["kept"]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_odd_settings_spoil_no_listing(kind: str, tmp_path: Path) -> None:
    """A title, tag or pin of another type is stored as text or truth, and every session can still be listed (B16, B37)."""
    async with await open_manager(f"{kind}:///{tmp_path}/store") as manager:
        session = await manager.get_or_create("cli:p", initial_context={"title": 7, "pinned": "yes"})
        assert (session.title, session.head.pinned) == ("7", True)
        await session.set_metadata(title=["x"], tags="work", pinned=[])
        heads = (await manager.list()).items
        assert [(head.title, head.tags, head.pinned) for head in heads] == [("['x']", ("work",), False)]
        await session.add_event(MetadataChangedEvent(set={"tags": [1, None], "title": None}))
        assert (await manager.list()).items[0].tags == ("1", "None")
