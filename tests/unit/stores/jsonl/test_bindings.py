"""The file of bindings: what could not be written is not bound, and what was erased leaves no copy of it (A52, C20)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kipu.errors import StoreFullError
from kipu.ports.store import Appended, Binding
from kipu.stores.jsonl.lock import FileLock
from tests.unit.stores.jsonl.kit import begin, opened, record, texts


def _refuse_bindings(patch: pytest.MonkeyPatch) -> None:
    """Let a line of bindings be written by half, and then no more."""
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if bytes(data).startswith(b'{"key":'):
            return write(fd, bytes(data)[:7])
        if bytes(data).startswith((b"k", b'"')):
            raise OSError(28, "No space left on device")
        return write(fd, data)

    patch.setattr(os, "write", full)


async def test_a_binding_that_could_not_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the key leads where it led, the file is as it was, and the key can be bound later (A52, C2)."""
    path = tmp_path / "store" / "bindings.jsonl"
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
        await store.bind("k", "one")
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            _refuse_bindings(patch)
            with pytest.raises(StoreFullError):
                await store.bind("k", "two", expected="one")
        assert path.read_bytes() == before
        assert await store.resolve("k") == "one"
        await store.bind("k", "two", expected="one")
    async with opened(tmp_path) as store:
        assert await store.resolve("k") == "two"
        assert await store.verify() == []


async def test_an_append_whose_binding_cannot_be_written_stops_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of appends that are committed together, the one whose intent finds no room is refused, and the others stand (C2, A52)."""
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await begin(store, "two")
        gate = FileLock(str(tmp_path / "store" / "one" / "lock"))
        gate.acquire(wait_s=1.0)  # neither is done at once, so that they are committed together
        with monkeypatch.context() as patch:
            _refuse_bindings(patch)
            jobs = [
                store.append("one", [record("plain")]),
                store.append("two", [record("binds")], bind=Binding("k")),
                store.append("two", [record("plain")]),
            ]
            waiting = asyncio.gather(*jobs, return_exceptions=True)
            await asyncio.sleep(0)
            gate.release()
            gate.close()
            first, refused, last = await waiting
        assert isinstance(refused, StoreFullError)
        assert (first, last) == (Appended("one", 2, 2), Appended("two", 2, 2))
    async with opened(tmp_path) as store:
        assert await texts(store, "one") == ["begin", "plain"]
        assert await texts(store, "two") == ["begin", "plain"]
        assert await store.resolve("k") is None


async def test_a_copy_that_a_kill_left_of_the_bindings_goes_with_the_session(tmp_path: Path) -> None:
    """Erasing removes what an earlier erasure, killed while it wrote the file anew, left of its keys, and nothing else (C20)."""
    folder = tmp_path / "store"
    async with opened(tmp_path) as store:
        await begin(store, "one")
        await store.bind("its-key", "one")
        (folder / "bindings.jsonl.4711.tmp").write_bytes((folder / "bindings.jsonl").read_bytes())
        (folder / "bindings.jsonl.saved").write_bytes(b"somebody's")
        (folder / "other.tmp").write_bytes(b"somebody's")
        lease = await store.claim("one", owner="me", ttl_s=5)
        assert lease is not None
        await store.erase("one", lease=lease)
    left = {path.name for path in folder.iterdir() if path.is_file() and b"its-key" in path.read_bytes()}
    assert left == set()
    assert {"bindings.jsonl.saved", "other.tmp"} <= set(os.listdir(folder))
