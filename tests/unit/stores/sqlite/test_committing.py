"""Commits: what is synced when, what happens together, and what a failing disk leaves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import apsw
import pytest

from kipu.errors import ConflictError, InputError, StoreCorruptError, StoreError, StoreFullError, StoreUnavailableError
from kipu.ports.store import Appended
from tests.unit.stores.sqlite.kit import Faults, begin, faults, opened, record


async def test_every_append_is_synced_when_durability_is_fsync(tmp_path: Path) -> None:
    """Each append returns after a sync of the log; claims, renewals and releases sync nothing (SQ-5, C2)."""
    with faults("kipu-count") as vfs:
        async with opened(tmp_path, vfs="kipu-count") as store:
            await begin(store)
            for _ in range(12):
                vfs.syncs.clear()
                await store.append("one", [record()])
                assert vfs.syncs == ["wal"]
            vfs.syncs.clear()
            lease = await store.claim("one", owner="me", ttl_s=5)
            assert lease is not None
            await store.renew(lease)
            await store.release(lease)
            assert vfs.syncs == []


async def test_keys_blobs_and_erasures_are_synced_too(tmp_path: Path) -> None:
    """What is no append but is acknowledged all the same is on the medium first, whatever the level but "os" (SQ-5, C2, C20)."""
    for durability in ("fsync", "buffered"):
        with faults(f"kipu-count-{durability}") as vfs:
            async with opened(tmp_path / durability, vfs=f"kipu-count-{durability}", durability=durability) as store:
                await begin(store)
                lease = await store.claim("one", owner="me", ttl_s=5)
                assert lease is not None
                vfs.syncs.clear()
                await store.bind("key", "one")
                assert vfs.syncs == ["wal"]
                await store.put_blob("one", b"big")
                assert vfs.syncs == ["wal", "wal"]
                await store.erase("one", lease=lease)
                assert vfs.syncs[2] == "wal"


async def test_a_new_file_is_durable_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and the folder that names it are synced before anything is stored (C16)."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("what a handle is open on cannot be seen here")
    synced: list[str] = []
    really = os.fsync

    def watched(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        really(handle)

    monkeypatch.setattr(os, "fsync", watched)
    async with opened(tmp_path):
        assert synced == [f"{tmp_path}/store.db", str(tmp_path)]


async def test_buffered_appends_are_synced_after_ten_events_or_when_urgent(tmp_path: Path) -> None:
    """Nine events sync nothing, the tenth or an urgent one does, and closing syncs the rest (SQ-6, B53)."""
    with faults("kipu-count") as vfs:
        async with opened(tmp_path, vfs="kipu-count", durability="buffered") as store:
            await store.append("one", [record(event_type="session_init", urgent=True)])
            vfs.syncs.clear()
            for _ in range(9):
                await store.append("one", [record()])
            assert vfs.syncs == []
            await store.append("one", [record()])
            assert vfs.syncs == ["wal"]
            await store.append("one", [record()])
            assert vfs.syncs == ["wal"]
            await store.append("one", [record(urgent=True)])
            assert vfs.syncs == ["wal", "wal"]


async def test_a_buffered_append_is_synced_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that nothing follows is synced by the clock (SQ-6, B53)."""
    import os

    synced = asyncio.Event()
    loop = asyncio.get_running_loop()
    really = os.fdatasync

    def watched(handle: int) -> None:
        really(handle)
        assert os.readlink(f"/proc/self/fd/{handle}").endswith("store.db-wal")
        loop.call_soon_threadsafe(synced.set)

    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        monkeypatch.setattr(os, "fdatasync", watched)
        started_s = loop.time()
        await store.append("one", [record()])
        await asyncio.wait_for(synced.wait(), timeout=60)
        assert loop.time() - started_s >= 0.1
        monkeypatch.undo()


async def test_a_sync_by_the_clock_that_failed_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that nothing follows is written once more after a failed sync, which a later one would pass over (SQ-6, B53)."""
    monkeypatch.setattr("kipu.stores.sqlite.committer.BUFFERED_S", 0.05)
    failed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def failing(handle: int) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise OSError(errno.EIO, "the medium does not take it")

    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        monkeypatch.setattr(os, "fdatasync", failing)
        await store.append("one", [record("alone")])
        async with asyncio.timeout(60):
            await failed.wait()
            while not _database_holds(tmp_path / "store.db", "alone"):  # noqa: ASYNC110 - nobody tells when it is written
                await asyncio.sleep(0.02)


def _database_holds(path: Path, text: str) -> bool:
    """Return whether an event is in the database itself, whatever its log holds."""
    reader = apsw.Connection(f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        return any(text.encode() in body for (body,) in reader.execute("SELECT body FROM events"))
    except apsw.Error:  # in the middle of being written
        return False
    finally:
        reader.close()


async def test_closing_syncs_what_a_buffer_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that were acknowledged and not synced yet are on the medium when the store is closed, whoever still reads (B53)."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("what a handle is open on cannot be seen here")
    synced: list[str] = []
    really = os.fdatasync

    def watched(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        really(handle)

    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        await store.append("one", [record("last")])
        monkeypatch.setattr(os, "fdatasync", watched)
    assert synced == [f"{tmp_path}/store.db-wal"]


async def test_nothing_is_synced_when_durability_is_os(tmp_path: Path) -> None:
    """Appends hand their bytes to the operating system and sync nothing (SQ-7)."""
    with faults("kipu-count") as vfs:
        async with opened(tmp_path, vfs="kipu-count", durability="os") as store:
            await begin(store)
            vfs.syncs.clear()
            for _ in range(30):
                await store.append("one", [record(urgent=True)])
            assert vfs.syncs == []


async def test_what_waits_is_committed_together(tmp_path: Path) -> None:
    """A hundred appends at once cost a few syncs, and each gets its own place (SQ-8)."""
    with faults("kipu-count") as vfs:
        async with opened(tmp_path, vfs="kipu-count") as store:
            await begin(store)
            vfs.syncs.clear()
            outcomes = await asyncio.gather(*(store.append("one", [record(str(n))]) for n in range(100)))
            assert len(vfs.syncs) <= 10
            assert [outcome.first_seq for outcome in outcomes] == list(range(2, 102))


async def test_a_refused_append_hurts_no_other_in_its_commit(tmp_path: Path) -> None:
    """Among many at once, one that conflicts and one that cannot be stored fail alone (SQ-8, C2)."""
    async with opened(tmp_path) as store:
        await begin(store)
        bad = record()._replace(event_id="\ud83d")
        calls = [store.append("one", [record(str(n))]) for n in range(5)]
        calls.insert(2, store.append("one", [bad]))
        calls.insert(4, store.append("one", [record()], expected_seq=77))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(outcomes[2], InputError)
        assert isinstance(outcomes[4], ConflictError)
        assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 5
        assert [event.seq for event in await store.read("one")] == [1, 2, 3, 4, 5, 6]


async def test_what_cannot_be_stored_fails_alone_in_a_commit_of_many(tmp_path: Path) -> None:
    """In one transaction with it, those before and behind it are stored each by itself, and one that was refused stays so (SQ-8, C2)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await begin(store, "two")
        other = apsw.Connection(str(tmp_path / "store.db"))
        other.execute("BEGIN IMMEDIATE")  # none is done at once, so that they are committed together
        calls = [
            store.append("one", [record("a")]),
            store.append("one", [record("b")], expected_seq=77),
            store.append("one", [record("c", tokens=1 << 70)]),
            store.append("two", [record("d")]),
            store.append("one", [record("e")]),
        ]
        waiting = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.05)
        other.execute("ROLLBACK")
        other.close()
        first, refused, odd, beside, last = await waiting
        assert isinstance(refused, ConflictError)
        assert isinstance(odd, InputError)
        assert [first, beside, last] == [Appended("one", 2, 2), Appended("two", 2, 2), Appended("one", 3, 3)]
        assert [event.seq for event in await store.read("one")] == [1, 2, 3]
        assert [event.seq for event in await store.read("two")] == [1, 2]


async def test_another_writer_is_waited_for_beside_the_event_loop(tmp_path: Path) -> None:
    """While another connection holds the write lock, the loop goes on; the append stands afterwards (SQ-9, situation 75)."""
    async with opened(tmp_path) as store:
        await begin(store)
        other = apsw.Connection(str(tmp_path / "store.db"))
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.append("one", [record()]))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(await store.read("one")) == 1
        assert not waiting.done()
        other.execute("COMMIT")
        other.close()
        assert (await waiting).first_seq == 2


@pytest.mark.parametrize("method", ["write", "sync"])
@pytest.mark.parametrize(
    ("driver", "ours"),
    [
        (apsw.FullError, StoreFullError),
        (apsw.IOError, StoreUnavailableError),
        (apsw.CorruptError, StoreCorruptError),
    ],
)
async def test_a_failing_disk_is_a_typed_error_and_leaves_the_old_state(
    tmp_path: Path, method: str, driver: type[apsw.Error], ours: type[StoreError]
) -> None:
    """A failed write or sync acknowledges nothing; what stood stands, and when the disk is back it goes on (SQ-11, A52)."""
    with faults("kipu-fail") as vfs:
        async with opened(tmp_path, vfs="kipu-fail") as store:
            await begin(store)
            await store.append("one", [record("kept")])
            before = await store.head("one")
            vfs.fail[method] = driver
            for _ in range(3):
                with pytest.raises(ours):
                    await store.append("one", [record("lost")])
            assert await store.head("one") == before
            assert [event.seq for event in await store.read("one")] == [1, 2]
            vfs.fail.clear()
            assert (await store.append("one", [record("later")])).first_seq == 3
        async with opened(tmp_path) as store:
            assert [event.record.body for event in await store.read("one", after=1)] == [
                b'{"content":"kept"}',
                b'{"content":"later"}',
            ]
            assert await store.verify() == []


async def test_the_log_begins_anew_after_a_failed_sync(tmp_path: Path) -> None:
    """After a failed sync the database itself is synced before anything more is acknowledged (SQ-12)."""
    with faults("kipu-fail") as vfs:
        async with opened(tmp_path, vfs="kipu-fail") as store:
            await begin(store)
            vfs.fail["sync"] = apsw.IOError
            with pytest.raises(StoreUnavailableError):
                await store.append("one", [record()])
            vfs.fail.clear()
            vfs.syncs.clear()
            await store.append("one", [record()])
            assert vfs.syncs[-1] == "wal"
            assert "db" in vfs.syncs


async def test_a_body_of_twenty_megabytes_does_not_hold_up_the_loop_thread(tmp_path: Path) -> None:
    """A big append is written in the writer thread and read back whole (SQ-9)."""
    async with opened(tmp_path, durability="os") as store:
        await begin(store)
        big = asyncio.ensure_future(store.append("one", [record("x" * 20_000_000)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not big.done()
        await big
        (event,) = await store.read("one", after=1)
        assert len(event.record.body) > 20_000_000


async def _work(folder: Path, vfs: Faults, *, fail_at: int, kind: type[apsw.Error]) -> tuple[dict[int, int], bool]:
    """Append, claim and erase while the n-th call fails; return what was acknowledged and whether it came to that call."""
    kept: dict[int, int] = {}
    async with opened(folder, vfs=vfs.name) as store:
        await begin(store)
        await begin(store, "two")
        vfs.once = (fail_at, kind)
        for number in range(8):
            with contextlib.suppress(StoreError):
                kept[(await store.append("one", [record(f"{number}" * 3_000)])).first_seq] = number
            if number == 4:
                with contextlib.suppress(StoreError):
                    lease = await store.claim("two", owner="me", ttl_s=5)
                    assert lease is not None
                    await store.erase("two", lease=lease)
        reached = vfs.once is None
        vfs.once = None
    return kept, reached


@pytest.mark.parametrize("kind", [apsw.IOError, apsw.FullError])
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
async def test_whichever_call_fails_nothing_acknowledged_is_lost(
    tmp_path: Path, kind: type[apsw.Error], step: int
) -> None:
    """Whichever write, truncation or sync fails, what was acknowledged is there, in order and whole (SQ-11, A52, C2)."""
    fail_at, reached = 1, True
    with faults("kipu-nth") as vfs:
        while reached:
            folder = tmp_path / str(fail_at)
            kept, reached = await _work(folder, vfs, fail_at=fail_at, kind=kind)
            assert len(kept) >= 7
            async with opened(folder) as store:
                events = {event.seq: event.record.body for event in await store.read("one")}
                assert list(events) == list(range(1, len(events) + 1))
                assert all(events[seq] == record(f"{number}" * 3_000).body for seq, number in kept.items())
                assert await store.verify() == []
            fail_at += step
    assert fail_at > 40
