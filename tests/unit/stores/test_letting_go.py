"""Letting go of events and taking them back: what every store refuses, and which pages need no second look."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import ConflictError
from kipu.ports.store import Record, StoredEvent
from kipu.stores.offloading import is_whole
from kipu.wiring import open_store

STORES = ("memory://", "sqlite:///{}/a.db", "jsonl:///{}/a")
TIME = "2027-01-15T08:00:00.000000Z"


def _record(name: str, event_type: str = "user_message") -> Record:
    return Record(name, event_type, TIME, b"{}")


@pytest.mark.parametrize("url", STORES)
async def test_a_session_that_has_let_go_lets_go_of_no_more(url: str, tmp_path: Path) -> None:
    """What arrived since is in no archive: letting go of it as well is refused, and it is still read (C16, A56)."""
    store = await open_store(url.format(tmp_path))
    try:
        await store.append("one", [_record("begin", "session_init"), _record("a")])
        lease = await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
        assert lease is not None
        await store.offload("one", until=2, blobs=[], archive={"place": "x"}, lease=lease)
        await store.append("one", [_record("arrived")])
        with pytest.raises(ConflictError):
            await store.offload("one", until=3, blobs=[], archive={"place": "x"}, lease=lease)
        assert [event.record.event_id for event in await store.read("one", after=2)] == ["arrived"]
    finally:
        await store.close()


@pytest.mark.parametrize("url", STORES)
async def test_events_of_another_session_are_not_taken_back(url: str, tmp_path: Path) -> None:
    """An archive of another session is none of this one, though its numbers would fit (B38, A56)."""
    store = await open_store(url.format(tmp_path))
    try:
        for session_id in ("one", "two"):
            await store.append(
                session_id, [_record(f"begin {session_id}", "session_init"), _record(f"in {session_id}")]
            )
        others = await store.read("two")
        lease = await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
        assert lease is not None
        await store.offload("one", until=2, blobs=[], archive={"place": "x"}, lease=lease)
        with pytest.raises(ConflictError):
            await store.reload("one", others, lease=lease, complete=True)
        head = await store.head("one")
        assert head is not None
        assert head.offloaded_seq == 2
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("seqs", "after", "limit", "backwards", "whole"),
    [
        ([], 0, 3, False, False),
        ([4, 5, 6], 3, 3, False, True),
        ([5, 6], 3, 3, False, False),
        ([4, 6], 3, 3, False, False),
        ([6, 5, 4], 0, 3, True, True),
        ([6, 5, 4], 3, 9, True, True),
        ([6, 5], 3, 9, True, False),
        ([6, 4], 3, 2, True, False),
    ],
)
def test_a_page_with_a_hole_may_have_been_let_go_of(
    seqs: list[int], after: int, limit: int, *, backwards: bool, whole: bool
) -> None:
    """What is missing at the side where reading began, or between, is looked for in the head before it counts as absent (A50)."""
    page = [StoredEvent(seq, "one", _record(str(seq))) for seq in seqs]
    assert is_whole(page, after=after, limit=limit, backwards=backwards) is whole
