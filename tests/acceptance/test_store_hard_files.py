"""JSONL logs as other programs and bad days leave them, seen through the manager: what can be read is there for its owner."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from kipu.errors import SessionNotFoundError
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
