"""What every store refuses before it writes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import ConflictError, InputError, InvalidSessionIdError
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


@pytest.mark.parametrize("url", STORES)
async def test_a_body_of_two_lines_is_refused(url: str, tmp_path: Path) -> None:
    """A body is one line, for every store: what one kept and another could not, could not be copied (C2, B8)."""
    store = await open_store(url.format(tmp_path))
    try:
        await store.append("one", [INIT])
        with pytest.raises(InputError):
            await store.append("one", [INIT._replace(event_id="e2", event_type="note", body=b'{"a":\n1}')])
        assert len(await store.read("one")) == 1
    finally:
        await store.close()


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize(("owner", "ttl_s"), [("", 10.0), ("me", 0.0), ("me", -1.0)])
async def test_a_lease_of_nobody_or_no_time_is_refused(url: str, owner: str, ttl_s: float, tmp_path: Path) -> None:
    """A lease that is over when it begins would fence everybody else out for nothing (C3)."""
    store = await open_store(url.format(tmp_path))
    try:
        await store.append("one", [INIT])
        with pytest.raises(InputError):
            await store.claim("one", owner=owner, ttl_s=ttl_s)
        head = await store.head("one")
        assert head is not None
        assert head.lease_token == 0
    finally:
        await store.close()


@pytest.mark.parametrize("url", STORES)
async def test_what_was_let_go_is_let_go_once_and_taken_back_as_it_was(url: str, tmp_path: Path) -> None:
    """A second letting go up to another place, and events of another session, are refused; the session comes back whole (B48, C2)."""
    store = await open_store(url.format(tmp_path))
    try:
        for session_id in ("one", "two"):
            await store.append(session_id, [INIT._replace(event_id=f"{session_id}-1")])
        own, others = await store.read("one"), await store.read("two")
        lease = await store.claim("one", owner="me", ttl_s=60.0)
        assert lease is not None
        note = {"of": "a test"}
        await store.offload("one", until=1, blobs=[], archive=note, lease=lease)
        await store.append("one", [INIT._replace(event_id="one-2", event_type="note")], token=lease.token)
        with pytest.raises(ConflictError):
            await store.offload("one", until=2, blobs=[], archive=note, lease=lease)
        with pytest.raises(ConflictError):
            await store.reload("one", others, lease=lease)
        await store.reload("one", own, lease=lease, complete=True)
        assert [event.record.event_id for event in await store.read("one")] == ["one-1", "one-2"]
    finally:
        await store.close()
