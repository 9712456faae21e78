"""Several sessions and several stores in one commit: what stops one stops no other, and nothing is decided by what was so before."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kipu.errors import ConflictError, InputError, StoreCorruptError, StoreUnavailableError
from kipu.ports.head import HeadPatch
from kipu.ports.store import Appended, Binding
from kipu.stores.jsonl.commit import Commit
from kipu.stores.jsonl.lock import FileLock
from tests.unit.stores.jsonl.kit import begin, opened, record, texts


def _lock_of(folder: Path, session_id: str) -> FileLock:
    return FileLock(str(folder / "store" / session_id / "lock"))


async def test_a_session_that_cannot_be_read_stops_only_its_own_append(tmp_path: Path) -> None:
    """Of appends that are committed together the one to a log without its floor is refused, the others stand (A53, C16)."""
    async with opened(tmp_path) as store:
        for name in ("one", "two", "three"):
            await begin(store, name)
    (tmp_path / "store" / "two" / "floor.json").write_bytes(b"{}\n00000000\n")
    (tmp_path / "store" / "three" / "lock").unlink()
    (tmp_path / "store" / "three" / "lock").mkdir()
    async with opened(tmp_path) as store:
        jobs = [store.append(name, [record("more")]) for name in ("one", "two", "three")]
        fine, corrupt, unreadable = await asyncio.gather(*jobs, return_exceptions=True)
        assert isinstance(fine, Appended)
        assert isinstance(corrupt, StoreCorruptError)
        assert isinstance(unreadable, StoreUnavailableError)
        assert await texts(store, "one") == ["begin", "more"]


async def test_a_key_that_another_store_bound_is_a_conflict_for_an_append(tmp_path: Path) -> None:
    """An append that binds a key looks where the key leads now, not where it led when this store looked last (C4, A13)."""
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await begin(store, "one")
        await begin(store, "two")
        assert await store.resolve("k") is None
        await other.bind("k", "two")
        with pytest.raises(ConflictError):
            await store.append("one", [record("bound")], bind=Binding("k"))
        assert await store.resolve("k") == "two"
        assert await texts(store, "one") == ["begin"]


async def test_who_waits_for_a_session_holds_none_behind_it(tmp_path: Path) -> None:
    """A commit locks its sessions in the order of their ids, so that no two commits ever wait for each other (A40, C16)."""
    names = [f"s{number}" for number in range(8)]
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        for name in names:
            await begin(store, name)
            await other.head(name)
        first = _lock_of(tmp_path, names[0])
        first.acquire(wait_s=1.0)
        try:
            jobs = asyncio.gather(*(store.append(name, [record("waits")]) for name in names))
            await asyncio.sleep(0.1)
            assert not jobs.done()
            for name in names[1:]:
                await asyncio.wait_for(other.append(name, [record("passes")]), 60)
        finally:
            first.release()
            first.close()
        await jobs
        assert await texts(store, "s7") == ["begin", "passes", "waits"]


DIES_AFTER_ITS_SYNC = """
import asyncio, os, sys
import kipu.stores.jsonl.commit as commit
from kipu.ports.store import Record
from kipu.wiring import open_store

async def main():
    store = await open_store(sys.argv[1])
    commit.Commit._record = lambda self: os._exit(7)
    record = Record(
        event_id="e", event_type="user_message", timestamp="2027-01-15T08:00:00.000000Z", body=b'{"content":"keyed"}'
    )
    await store.append("two", [record], idempotency_key="of-the-dead")

asyncio.run(main())
"""


async def test_a_key_that_was_used_while_a_commit_waited_is_looked_for_again(tmp_path: Path) -> None:
    """While a commit settles one key in another session, another store may append under a second one: that counts once (C4, JL-20)."""
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await begin(store, "one")
        await begin(store, "two")
        command = [sys.executable, "-c", DIES_AFTER_ITS_SYNC, f"jsonl:///{tmp_path}/store"]
        died = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True)
        assert died.returncode == 7, died.stderr
        held, gate = _lock_of(tmp_path, "two"), _lock_of(tmp_path, "one")
        held.acquire(wait_s=1.0)
        gate.acquire(wait_s=1.0)  # neither is done at once, so that they are committed together
        try:
            jobs = asyncio.gather(
                store.append("one", [record("first")], idempotency_key="both"),
                store.append("one", [record("second")], idempotency_key="of-the-dead"),
            )
            await asyncio.sleep(0)
            gate.release()
            await _until_expected(tmp_path, "both")
            elsewhere = await other.append("one", [record("first")], idempotency_key="both")
        finally:
            held.release()
            held.close()
            gate.close()
        mine, dead = await jobs
        assert (mine.first_seq, mine.duplicate) == (elsewhere.first_seq, True)
        assert (dead.session_id, dead.duplicate) == ("two", True)
        assert await texts(store, "one") == ["begin", "first"]


async def test_a_key_that_was_expected_of_a_session_that_never_began_is_free(tmp_path: Path) -> None:
    """A writer that died before it made the session it had a key for keeps nobody from using the key (JL-20, C4)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        script = DIES_AFTER_ITS_SYNC.replace("commit.Commit._record", "commit.Commit._decide").replace("self:", "*_:")
        command = [sys.executable, "-c", script, f"jsonl:///{tmp_path}/store"]
        died = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True)
        assert died.returncode == 7, died.stderr
        assert not (tmp_path / "store" / "two").exists()
        for text in ("first", "again"):
            done = await store.append("one", [record(text)], idempotency_key="of-the-dead")
            assert (done.session_id, done.first_seq, done.duplicate) == ("one", 2, text == "again")
        assert await texts(store, "one") == ["begin", "first"]


@pytest.mark.parametrize("expected_seq", [1, 7], ids=["that is appended", "that is refused"])
async def test_the_same_key_twice_in_one_commit_has_one_outcome(tmp_path: Path, expected_seq: int) -> None:
    """Who comes second in the commit is told what became of the first, as a duplicate, or as the refusal it was (C2, C4)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        gate = _lock_of(tmp_path, "one")
        gate.acquire(wait_s=1.0)  # neither is done at once, so that they are committed together
        jobs = [
            store.append("one", [record("once")], idempotency_key="k", expected_seq=expected_seq),
            store.append("one", [record("once")], idempotency_key="k", expected_seq=expected_seq),
        ]
        waiting = asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.sleep(0)
        gate.release()
        gate.close()
        found = await waiting
        if expected_seq == 1:
            assert found == [Appended("one", 2, 2), Appended("one", 2, 2, duplicate=True)]
        else:
            assert [type(outcome) for outcome in found] == [ConflictError, ConflictError]
        assert await texts(store, "one") == (["begin", "once"] if expected_seq == 1 else ["begin"])


async def test_a_key_in_a_line_of_another_machine_is_known_once_its_log_is_read(tmp_path: Path) -> None:
    """Where each machine has an index of its own, a retry to the session that took the key is still no second event (JL-26, C4)."""
    here, there = ({"index": str(tmp_path / name)} for name in ("here", "there"))
    async with opened(tmp_path, **here) as store, opened(tmp_path, **there) as other:
        await begin(store, "one")
        first = await other.append("one", [record("once")], idempotency_key="k")
        again = await store.append("one", [record("once")], idempotency_key="k")
        assert (again.first_seq, again.duplicate) == (first.first_seq, True)
        assert await texts(store, "one") == ["begin", "once"]


@pytest.mark.parametrize(
    "options",
    [{"idempotency_key": "\ud800"}, {"head": HeadPatch(set={"title": "\ud800"})}, {"tokens": 1 << 70}],
    ids=["its key", "its patch", "its number"],
)
async def test_what_cannot_be_stored_takes_nothing_else_down(tmp_path: Path, options: dict[str, Any]) -> None:
    """An append that no line can hold is refused; those committed with it are in the log if they are acknowledged, and they are (C2)."""
    odd = record("odd", tokens=options.pop("tokens", 0))
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
        gate = _lock_of(tmp_path, "one")
        gate.acquire(wait_s=1.0)  # none is done at once, so that they are committed together
        jobs = [
            store.append("one", [record("before")]),
            store.append("one", [odd], **options),
            store.append("two", [record("beside")]),
        ]
        waiting = asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.sleep(0)
        gate.release()
        gate.close()
        before, refused, beside = await waiting
        assert isinstance(refused, InputError)
        assert (before, beside) == (Appended("one", 2, 2), Appended("two", 2, 2))
        assert await texts(store, "one") == ["begin", "before"]
        assert await texts(store, "two") == ["begin", "beside"]
        with pytest.raises(InputError):
            await store.append("one", [odd], **options)
        await store.append("one", [record("after")])
    async with opened(tmp_path) as store:
        assert await texts(store, "one") == ["begin", "before", "after"]


async def test_a_commit_that_breaks_off_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends a commit between its decisions and its first byte, no append of it is told that it stands (C2, A52)."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with opened(tmp_path) as store:
        await begin(store, "one")
        gate = _lock_of(tmp_path, "one")
        gate.acquire(wait_s=1.0)
        with monkeypatch.context() as patch:
            patch.setattr(Commit, "_write", broken)
            waiting = asyncio.gather(*(store.append("one", [record(text)]) for text in "ab"), return_exceptions=True)
            await asyncio.sleep(0)
            gate.release()
            gate.close()
            assert [type(outcome) for outcome in await waiting] == [ZeroDivisionError] * 2
        assert await texts(store, "one") == ["begin"]


async def _until_expected(folder: Path, key: str) -> None:
    """Wait until a commit has said that a batch with this key is on its way."""
    index = sqlite3.connect(folder / "store" / "index.sqlite")
    try:
        deadline_s = time.monotonic() + 60
        while not index.execute("SELECT 1 FROM pending WHERE key = ?", (key,)).fetchone():
            assert time.monotonic() < deadline_s, "nobody expects the key"
            await asyncio.sleep(0.01)
    finally:
        index.close()
