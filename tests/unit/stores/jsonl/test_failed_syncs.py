"""A medium that fails once, and a system that takes what it then did not write for written (B53, C2)."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import StoreUnavailableError
from kipu.testing.fakes import FakeClock
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record, texts

WAIT_S = 60


class System:
    """The bytes of each file that are not on the medium: those that a sync would write, and those that none will any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self.failed = asyncio.Event()
        self.synced = asyncio.Event()
        self._waiting: dict[int, set[int]] = defaultdict(set)
        self._passed_over: dict[int, set[int]] = defaultdict(set)
        self._real = {name: getattr(os, name) for name in ("write", "pwrite", "fsync", "fdatasync")}
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, name))

    def write(self, fd: int, data: Any) -> int:
        """Write at the end, as logs are written."""
        at = os.fstat(fd).st_size
        return self._wrote(fd, at, self._real["write"](fd, data))

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        """Write in a place."""
        return self._wrote(fd, offset, self._real["pwrite"](fd, data, offset))

    def fsync(self, fd: int) -> None:
        """Sync what waits; where that fails, nothing waits any more."""
        inode = os.fstat(fd).st_ino
        waited = self._waiting.pop(inode, set())
        if self.fails:
            self._passed_over[inode] |= waited
            self.failed.set()
            raise OSError(errno.EIO, "the medium does not take it")
        self._real["fsync"](fd)
        self.synced.set()

    fdatasync = fsync

    def lacks(self, path: Path) -> int:
        """Return how many bytes of a file the medium does not have."""
        now = path.stat()
        missing = self._waiting[now.st_ino] | self._passed_over[now.st_ino]
        return len([offset for offset in missing if offset < now.st_size])

    def _wrote(self, fd: int, at: int, count: int) -> int:
        inode, places = os.fstat(fd).st_ino, range(at, at + count)
        self._waiting[inode].update(places)
        self._passed_over[inode].difference_update(places)
        return count


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    """Return the system under the store."""
    monkeypatch.setattr("kipu.stores.jsonl.store.BUFFER_S", 0.05)
    return System(monkeypatch)


async def test_what_a_failed_sync_left_is_on_the_medium_before_anything_more_is_promised(
    tmp_path: Path, system: System
) -> None:
    """While the medium refuses what was acknowledged, appends are refused; then they bring the earlier bytes along (B53)."""
    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        await store.append("one", [record("urgent", urgent=True)])
        system.fails = True
        await fill(store, 1)
        async with asyncio.timeout(WAIT_S):
            await system.failed.wait()
        with pytest.raises(StoreUnavailableError):
            await store.append("one", [record("refused")])
        system.fails = False
        await store.append("one", [record("urgent too", urgent=True)])
        assert system.lacks(log_of(tmp_path)) == 0
        assert await texts(store) == ["begin", "urgent", "1", "urgent too"]


async def test_a_failed_sync_is_made_up_for_by_the_clock(tmp_path: Path, system: System) -> None:
    """An event that nothing follows is on the medium soon after that takes things again (JL-13, B53)."""
    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        system.fails = True
        await fill(store, 1)
        async with asyncio.timeout(WAIT_S):
            await system.failed.wait()
            system.fails = False
            system.synced.clear()
            await system.synced.wait()
        assert system.lacks(log_of(tmp_path)) == 0


async def test_a_refused_append_leaves_what_was_acknowledged_before_to_be_synced(
    tmp_path: Path, system: System
) -> None:
    """Where the sync of an append fails, that one is refused, and the ones before it are still put on the medium (B53, C2)."""
    async with opened(tmp_path, durability="buffered", clock=FakeClock()) as store:
        await begin(store)
        await fill(store, 1)
        system.fails = True
        with pytest.raises(StoreUnavailableError):
            await store.append("one", [record("refused", urgent=True)])
        system.fails = False
        await store.append("one", [record("taken", urgent=True)])
        assert system.lacks(log_of(tmp_path)) == 0
        assert await texts(store) == ["begin", "1", "taken"]


async def test_a_full_segment_is_on_the_medium_before_the_next_one_begins(tmp_path: Path, system: System) -> None:
    """No later event is there after a power cut without the earlier ones, though they stand in another file (B53, C2)."""
    async with opened(tmp_path, durability="buffered", segment_bytes=4096) as store:
        await begin(store)
        await store.append("one", [record("x" * 4200)])
        await store.append("one", [record("next")])
        assert log_of(tmp_path, segment=2).exists()
        assert system.lacks(log_of(tmp_path)) == 0


async def test_the_clock_forgets_nothing_of_a_commit_under_way(
    tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written while the clock syncs is synced by its next tick, though the commit ended after this one (JL-13, B53)."""
    monkeypatch.setattr("kipu.stores.jsonl.store.BUFFER_S", 2.0)
    monkeypatch.setattr("kipu.stores.jsonl.queue.QUICK_S", 0.0)  # commits are in a thread
    loop, halfway, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    main, syncs = threading.get_ident(), os.fdatasync

    def slow(fd: int) -> None:
        if threading.get_ident() != main:
            loop.call_soon_threadsafe(halfway.set)
            goes_on.wait(WAIT_S)
        syncs(fd)

    async with opened(tmp_path, durability="buffered") as store, asyncio.timeout(2 * WAIT_S):
        for session_id in ("one", "two", "three"):
            await begin(store, session_id)
            await store.append(session_id, [record("urgent", urgent=True)])
        await fill(store, 1, "three")
        monkeypatch.setattr(os, "fdatasync", slow)
        urgent = store.append("one", [record("urgent", urgent=True)])
        both = asyncio.gather(urgent, store.append("two", [record("buffered")]))
        await halfway.wait()
        system.synced.clear()
        await system.synced.wait()  # by the clock: the commit is held up
        goes_on.set()
        await both
        while system.lacks(log_of(tmp_path, "two")):  # noqa: ASYNC110 - nobody tells which file was synced
            await asyncio.sleep(0.02)
