"""A session whose events are in an archive, while the primary refuses: it takes messages, and stays archived (A49, B48)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import SessionArchivedError
from tests.unit.stores.fallback.kit import begin, log, pair, record


async def test_a_message_to_an_archived_session_is_spooled_and_merged(tmp_path: Path) -> None:
    """In an outage an archived session takes a message, its head says where the rest is, and the merge keeps both (A49, B48)."""
    async with pair(tmp_path) as (store, primary):
        await begin(store)
        for number in range(3):
            await store.append("one", [record(f"text {number}")])
        lease = await store.claim("one", owner="here", ttl_s=60)
        assert lease is not None
        await store.offload("one", until=4, blobs=[], archive={"name": "a file"}, lease=lease)
        await store.release(lease)
        primary.refuses = True
        assert (await store.append("one", [record("in the outage")])).first_seq == 5
        head = await store.head("one")
        assert head is not None
        assert (head.offloaded_seq, head.archive, head.last_seq) == (4, {"name": "a file"}, 5)
        assert [event.seq for event in await store.read("one", after=4)] == [5]
        with pytest.raises(SessionArchivedError):
            await log(store)
        primary.refuses = False
        head = await store.head("one")
        assert head is not None
        assert (head.offloaded_seq, head.archive, head.last_seq) == (4, {"name": "a file"}, 5)
        assert [event.seq for event in await store.read("one", after=4)] == [5]
