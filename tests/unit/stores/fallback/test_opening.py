"""A primary that cannot be made or opened at first: the spool takes over, and the primary is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import StoreUnavailableError, StoreUrlError
from kipu.events.conversation import UserMessageEvent
from kipu.ports.store import EventStore
from kipu.wiring import open_manager, open_store


async def _said(store: EventStore, session_id: str) -> list[bytes]:
    return [event.record.body for event in await store.read(session_id)]


async def test_spool_takes_over_from_a_primary_that_could_never_be_made(tmp_path: Path) -> None:
    """Sessions, keys, lists, windows and searches go on without it, and it gets everything when it can be made (A49)."""
    blocked = tmp_path / "place"
    blocked.write_bytes(b"no folder")
    url = f"sqlite:///{blocked}/k.db"
    async with await open_manager(f"{url}?fallback=jsonl:///{tmp_path}/spool") as manager:
        session = await manager.get_or_create("cli:p")
        await session.add_event(UserMessageEvent(content="needle"))
        assert [message["content"] for message in await session.get_context_for_llm()] == ["needle"]
        assert (await manager.get_or_create("cli:p")).session_id == session.session_id
        assert await manager.list_sessions() == [session.session_id]
        assert (await manager.search("needle")).items == ()
        assert "cannot be opened now" in str(manager.store.describe().notes)
        blocked.unlink()
        await session.add_event(UserMessageEvent(content="more"))
        assert len((await manager.search("needle")).items) == 1
    primary = await open_store(url)
    try:
        assert len(await _said(primary, session.session_id)) == 3
        assert await primary.resolve("cli:p") == session.session_id
    finally:
        await primary.close()


async def test_primary_that_may_hold_sessions_is_not_taken_for_empty(tmp_path: Path) -> None:
    """What only an unreachable primary knows is an outage, and never "no session" (A50)."""
    (tmp_path / "k.db").symlink_to(tmp_path / "k.db")
    store = await open_store(f"sqlite:///{tmp_path}/k.db?fallback=jsonl:///{tmp_path}/spool")
    try:
        with pytest.raises(StoreUnavailableError):
            await store.resolve("cli:p")
        with pytest.raises(StoreUnavailableError):
            await store.head("one")
    finally:
        await store.close()


async def test_wrong_place_of_the_primary_stays_an_error(tmp_path: Path) -> None:
    """A folder in the place of the database is a wrong URL and no outage (A49)."""
    (tmp_path / "k.db").mkdir()
    with pytest.raises(StoreUrlError):
        await open_store(f"sqlite:///{tmp_path}/k.db?fallback=jsonl:///{tmp_path}/spool")
