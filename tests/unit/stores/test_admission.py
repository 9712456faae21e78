"""What every store refuses before it writes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import InputError, InvalidSessionIdError
from kipu.ports.store import Record
from kipu.wiring import open_store

STORES = ("memory://", "sqlite:///{}/a.db", "jsonl:///{}/a")
INIT = Record("e1", "session_init", "2027-01-15T08:00:00.000000Z", b"{}")


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize("session_id", ["../x", "", "a/b", "CON", "con", "A", "x" * 65, "é"])
async def test_a_store_begins_no_session_under_a_bad_id(url: str, session_id: str, tmp_path: Path) -> None:
    """An id that is no id is refused by the store itself, whoever asks, and nothing is there afterwards (A21)."""
    store = await open_store(url.format(tmp_path))
    try:
        with pytest.raises(InvalidSessionIdError):
            await store.append(session_id, [INIT])
        assert not [path for path in tmp_path.rglob("*") if path.name == session_id]
    finally:
        await store.close()


@pytest.mark.parametrize("url", STORES)
async def test_an_append_of_nothing_is_refused(url: str, tmp_path: Path) -> None:
    """A batch has at least one record: an empty one is a mistake of the caller, and says so (C2)."""
    store = await open_store(url.format(tmp_path))
    try:
        await store.append("one", [INIT])
        with pytest.raises(InputError):
            await store.append("one", [])
        assert len(await store.read("one")) == 1
    finally:
        await store.close()
