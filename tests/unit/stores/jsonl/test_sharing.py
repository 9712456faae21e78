"""Several stores and processes on one folder: leases, followers and erasure."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kipu.errors import LeaseLostError, SessionErasedError, SessionNotFoundError
from kipu.ports.store import SessionQuery
from kipu.stores.jsonl.erasing import _Erasure
from kipu.testing.fakes import FakeClock
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record, texts


async def test_lease_file_that_is_lost_gives_a_token_nobody_has(tmp_path: Path) -> None:
    """A damaged lease file makes every old token stale; one that is not there begins at 1 (LS-5, LS-6, C3)."""
    async with opened(tmp_path) as store:
        await begin(store)
        lease = await store.claim("one", owner="a", ttl_s=5)
        assert lease is not None
        assert lease.token == 1
        path = tmp_path / "store" / "one" / "lease"
        assert path.stat().st_size == 1024
        path.write_bytes(bytes(1024))
        with pytest.raises(LeaseLostError):
            await store.append("one", [record("x", event_type="agent_message")], token=lease.token)
        fresh = await store.claim("one", owner="b", ttl_s=5)
        assert fresh is not None
        assert fresh.token > 1_700_000_000


async def test_lease_in_the_index_is_shown_and_the_file_is_right(tmp_path: Path) -> None:
    """Lists show the lease; after the index was lost they still do (LS-7)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.claim("one", owner="a", ttl_s=5)
    for path in (tmp_path / "store").glob("index.sqlite*"):
        path.unlink()
    async with opened(tmp_path) as store:
        (head,) = (await store.list(SessionQuery())).items
        assert (head.lease_owner, head.lease_token) == ("a", 1)
        assert head == await store.head("one")


async def test_token_counts_and_time_does_not(tmp_path: Path) -> None:
    """An expired lease that nobody took over still appends; after a claim it does not (LS-1, LS-2, LS-3, LS-4)."""
    clock = FakeClock()
    async with opened(tmp_path, clock=clock) as store:
        await begin(store)
        old = await store.claim("one", owner="a", ttl_s=5)
        assert old is not None
        clock.advance(60)
        await store.append("one", [record("late", event_type="agent_message")], token=old.token)
        new = await store.claim("one", owner="b", ttl_s=5)
        assert new is not None
        assert new.token == 2
        with pytest.raises(LeaseLostError):
            await store.append("one", [record("stale", event_type="agent_message")], token=old.token)
        again = await store.claim("one", owner="b", ttl_s=5)
        assert again is not None
        assert again.token == 3


async def test_torn_tail_of_another_writer_is_moved_aside_by_an_open_store(tmp_path: Path) -> None:
    """A store that was open while another process died in the middle of a line loses nothing (JL-11, situation 2)."""
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        await begin(first)
        await fill(first, 2)
        await fill(second, 2)
        with log_of(tmp_path).open("ab") as file:
            file.write(b'{"seq":6,"b":40,"eve')
        assert (await first.append("one", [record("next")])).first_seq == 6
        assert await texts(second) == ["begin", "1", "2", "1", "2", "next"]


async def test_segments_of_another_store_are_followed(tmp_path: Path) -> None:
    """A segment that another process began is read and appended to (JL-3, JL-11, B52)."""
    async with opened(tmp_path, segment_bytes=4096) as first, opened(tmp_path, segment_bytes=4096) as second:
        await begin(first)
        for _ in range(20):
            await fill(first, 3)
            await fill(second, 3)
        assert [event.seq for event in await first.read("one")] == list(range(1, 122))
        assert [event.seq for event in await second.read("one")] == list(range(1, 122))


async def test_follower_of_everything_reads_the_notes_and_needs_none(tmp_path: Path) -> None:
    """Events of another store are followed, also after the notes were deleted (JL-23)."""
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        await begin(first)
        stream = second.follow()
        await first.append("one", [record("a")])
        async with asyncio.timeout(60):
            assert (await anext(stream)).record.event_id == "id-a"
            (tmp_path / "store" / "changes").unlink()
            await begin(first, "two")
            await first.append("one", [record("b")])
            seen = {(await anext(stream)).record.event_id for _ in range(2)}
        assert seen == {"id-begin", "id-b"}


async def test_erased_session_is_not_brought_back_by_an_open_writer(tmp_path: Path) -> None:
    """A writer that had the session open writes nothing after it was erased (JL-24, JL-25, situation 43a)."""
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        await begin(first)
        await fill(second, 2)
        lease = await first.claim("one", owner="a", ttl_s=5)
        assert lease is not None
        await first.erase("one", lease=lease)
        with pytest.raises(SessionNotFoundError):
            await second.append("one", [record("x")])
        with pytest.raises(SessionErasedError):
            await begin(second)
        assert not (tmp_path / "store" / "one").exists()
        assert (tmp_path / "store" / ".tombstones" / "one").exists()


async def test_erased_session_takes_its_keys_with_it(tmp_path: Path) -> None:
    """The bindings are written anew without it, and a key that led there leads nowhere, not back (JL-17, JL-24, C20)."""
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        for name in ("one", "two", "three"):
            await begin(first, name)
        await first.bind("moved", "one")
        await first.bind("moved", "two", expected="one")
        await first.bind("kept", "three")
        assert await second.resolve("moved") == "two"
        lease = await first.claim("two", owner="a", ttl_s=5)
        assert lease is not None
        await first.erase("two", lease=lease)
        assert (await first.resolve("moved"), await second.resolve("moved")) == (None, None)
        assert await second.resolve("kept") == "three"
        assert b"moved" not in (tmp_path / "store" / "bindings.jsonl").read_bytes()


async def test_erasure_goes_on_after_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut in the middle the session takes no event; called again the erasure ends (JL-24, C20)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await fill(store, 2)
        lease = await store.claim("one", owner="a", ttl_s=5)
        assert lease is not None

        def cut(self: object) -> None:
            raise OSError(5, "cut")

        monkeypatch.setattr(_Erasure, "remove_folder", cut)
        with pytest.raises(Exception, match="cut"):
            await store.erase("one", lease=lease)
        monkeypatch.undo()
        with pytest.raises(SessionNotFoundError):
            await fill(store, 1)
        await store.erase("one", lease=lease)
        assert await store.head("one") is None
        assert sorted(os.listdir(tmp_path / "store" / ".tombstones")) == ["one"]


async def test_a_log_that_was_put_back_from_a_copy_is_read_and_written_as_it_now_is(tmp_path: Path) -> None:
    """Where another file took the segment's name, an open store reads it and appends to it, and never to the one without a name (C16)."""
    other = tmp_path / "other"
    async with opened(other) as store:
        await begin(store, title="that")
        for text in "89":
            await store.append("one", [record(text)])
    async with opened(tmp_path) as store, opened(tmp_path) as reader:
        await begin(store, title="this")
        await fill(store, 2)
        assert await texts(reader) == ["begin", "1", "2"]
        assert log_of(other).stat().st_size == log_of(tmp_path).stat().st_size
        copy = tmp_path / "copy"
        copy.write_bytes(log_of(tmp_path).read_bytes())
        log_of(other).replace(log_of(tmp_path))
        for each in (store, reader):
            assert await texts(each) == ["begin", "8", "9"]
            head = await each.head("one")
            assert head is not None
            assert head.title == "that"
        copy.replace(log_of(tmp_path))
        await store.append("one", [record("3")])
        assert await texts(reader) == ["begin", "1", "2", "3"]
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", "1", "2", "3"]


async def test_an_empty_folder_is_looked_at_again(tmp_path: Path) -> None:
    """A session that had no line yet is read when another store begins it, and is gone when its folder is (JL-15, A50)."""
    for name in ("one", "two"):
        (tmp_path / "store" / name).mkdir(parents=True)
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        for name in ("one", "two"):
            head = await store.head(name)
            assert head is not None
            assert head.last_seq == 0
        await begin(other)
        assert await texts(store) == ["begin"]
        (tmp_path / "store" / "two" / "lock").unlink()
        (tmp_path / "store" / "two").rmdir()
        assert await store.head("two") is None


async def test_a_follower_sees_what_comes_after_the_notes_were_deleted(tmp_path: Path) -> None:
    """The file of notes may be deleted while stores are open: the writer begins it anew, and followers go on (JL-23)."""
    async with opened(tmp_path) as writer, opened(tmp_path) as reader:
        await begin(writer)
        events = reader.follow()
        await writer.append("one", [record("before")])
        assert (await asyncio.wait_for(anext(events), 60)).record.event_id == "id-before"
        (tmp_path / "store" / "changes").unlink()
        for text in ("after", "later", "last"):
            await writer.append("one", [record(text)])
            assert (await asyncio.wait_for(anext(events), 60)).record.event_id == f"id-{text}"
