"""Callers that give up: what only waited never happened, what was under way is seen through, and nobody is told the wrong thing (C2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import orjson
import pytest

from kipu.ports.head import HeadPatch
from kipu.ports.store import EventStore, Record
from kipu.stores.jsonl.lock import FileLock
from kipu.wiring import open_store

TIME = "2027-01-15T08:00:00.000000Z"
KINDS = pytest.mark.parametrize("kind", ["jsonl", "sqlite"])


def _record(text: str, event_type: str = "user_message") -> Record:
    return Record(f"id-{text}", event_type, TIME, orjson.dumps({"content": text}))


async def _begun(folder: Path, kind: str) -> EventStore:
    store = await open_store(f"{kind}:///{folder}/store")
    for name in ("one", "two"):
        await store.append(name, [_record(f"begin-{name}", "session_init")], head=HeadPatch(set={"created_at": TIME}))
    return store


@contextmanager
def _busy(folder: Path, kind: str) -> Iterator[None]:
    """Keep whoever appends to the first session waiting, as another process would."""
    if kind == "jsonl":
        lock = FileLock(str(folder / "store" / "one" / "lock"))
        lock.acquire(wait_s=5.0)
        try:
            yield
        finally:
            lock.release()
            lock.close()
        return
    other = apsw.Connection(str(folder / "store"))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def _texts(store: EventStore, session_id: str) -> list[str]:
    return [orjson.loads(event.record.body)["content"] for event in await store.read(session_id)]


@KINDS
async def test_an_append_that_only_waits_is_taken_back_when_its_caller_gives_up(tmp_path: Path, kind: str) -> None:
    """Cancelled before its commit began it is cancelled at once, and never written; the one under way is (C2)."""
    store = await _begun(tmp_path, kind)
    try:
        with _busy(tmp_path, kind):
            first = asyncio.create_task(store.append("one", [_record("first")]))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(store.append("two", [_record("second")]))
            await asyncio.sleep(0.1)
            second.cancel()
            await asyncio.wait([second], timeout=60)
            assert second.cancelled()
            assert not first.done()
        assert (await first).first_seq == 2
        assert await _texts(store, "one") == ["begin-one", "first"]
        assert await _texts(store, "two") == ["begin-two"]
    finally:
        await store.close()


@KINDS
@pytest.mark.parametrize("times", [1, 3])
async def test_an_append_that_is_under_way_is_seen_through(tmp_path: Path, kind: str, times: int) -> None:
    """However often its caller gives up, it gets the outcome of what is written, and the cancellation at its next await (C2)."""
    store = await _begun(tmp_path, kind)
    told: list[int] = []

    async def caller() -> None:
        told.append((await store.append("one", [_record("written")])).first_seq)
        await asyncio.sleep(30)

    try:
        with _busy(tmp_path, kind):
            task = asyncio.create_task(caller())
            await asyncio.sleep(0.1)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0.02)
            assert not task.done()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        assert told == [2]
        assert await _texts(store, "one") == ["begin-one", "written"]
    finally:
        await store.close()


@KINDS
async def test_who_gave_up_an_append_that_is_refused_is_cancelled(tmp_path: Path, kind: str) -> None:
    """Where nothing was written there is no outcome to tell: the cancellation stands (C2)."""
    store = await _begun(tmp_path, kind)
    try:
        with _busy(tmp_path, kind):
            task = asyncio.create_task(store.append("one", [_record("refused")], expected_seq=9))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        assert await _texts(store, "one") == ["begin-one"]
    finally:
        await store.close()
