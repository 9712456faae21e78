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


TORN = [
    b'{"key":"cli:its-key","session_id":"one","generation":7,"c":"0000',
    b'{"key":"cli:its-key","sess',
    b'{"key":"cli:its-',
]


@pytest.mark.parametrize("moved", [True, False], ids=["moved aside", "in the file"])
@pytest.mark.parametrize("torn", TORN)
async def test_a_torn_binding_goes_with_the_session_it_tells_of(tmp_path: Path, torn: bytes, moved: bool) -> None:
    """What a kill left of a line, in the file or in quarantine, is erased with its session; that of another session stays (C20)."""
    folder = tmp_path / "store"
    others = torn.replace(b"its", b"her").replace(b"one", b"two")
    async with opened(tmp_path) as store:
        for name, key in (("one", "cli:its-key"), ("two", "cli:her-key")):
            await begin(store, name)
            await store.bind(key, name)
    for number, line in enumerate((others, torn)):
        with (folder / "bindings.jsonl").open("ab") as file:
            file.write(line)
        if moved:
            async with opened(tmp_path) as store:
                await store.bind(f"cli:{number}", "two")
        else:
            with (folder / "bindings.jsonl").open("ab") as file:
                file.write(b"\n")
    async with opened(tmp_path) as store:
        lease = await store.claim("one", owner="me", ttl_s=5)
        assert lease is not None
        await store.erase("one", lease=lease)
        assert await store.resolve("cli:her-key") == "two"
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not [data for data in files if b"cli:its-" in data]
    assert [data for data in files if others in data]


@pytest.mark.parametrize("is_open", [False, True], ids=["opened later", "open"])
async def test_file_that_is_gone_is_made_anew_of_what_the_logs_say(tmp_path: Path, *, is_open: bool) -> None:
    """A key leads where the newest batch that bound it says, and `verify` says what could not be known (JL-36, A13, C16)."""
    path = tmp_path / "store" / "bindings.jsonl"
    async with opened(tmp_path) as store:
        for session_id, before in (("one", None), ("two", "one"), ("three", None)):
            key = "k" if session_id != "three" else "other"
            await begin(store, session_id)
            await store.append(session_id, [record(session_id)], bind=Binding(key, before))
        await store.append("one", [record("back")], bind=Binding("k", "two"))
        await store.append("two", [record("there")], bind=Binding("k", "one"))
        await store.bind("beside", "three")
        if is_open:
            path.unlink()
            assert [await store.resolve(key) for key in ("k", "other", "beside")] == ["two", "three", "three"]
            path.unlink()
            await store.bind("k", "one", expected="two")
            await store.bind("k", "two", expected="one")
    path.unlink()
    async with opened(tmp_path) as store:
        assert [await store.resolve(key) for key in ("k", "other", "beside")] == ["two", "three", None]
        (gap,) = await store.verify()
        assert (gap.session_id, gap.reason, gap.where) == (None, "gap", "bindings.jsonl")
        assert "2 keys" in gap.detail
        await store.append("one", [record("again")], bind=Binding("k", "two"))
    async with opened(tmp_path) as store:
        assert await store.resolve("k") == "one"
        assert await store.keys("three") == ["other"]
        assert await store.verify() == []


async def test_logs_are_searched_for_keys_once(tmp_path: Path) -> None:
    """Where no log binds any key there is an empty file from then on, which is no damage (JL-36)."""
    async with opened(tmp_path) as store:
        await begin(store)
        assert await store.resolve("k") is None
    assert (tmp_path / "store" / "bindings.jsonl").read_bytes() == b""
    async with opened(tmp_path) as store:
        assert await store.resolve("k") is None
        assert await store.verify() == []


async def test_unreadable_log_keeps_no_key_of_another_from_being_found_again(tmp_path: Path) -> None:
    """What cannot be read says nothing, and the rest of the logs say what they say (JL-36, A53)."""
    async with opened(tmp_path) as store:
        for session_id in ("one", "two"):
            await begin(store, session_id)
            await store.append(session_id, [record(session_id)], bind=Binding(f"k:{session_id}"))
    (tmp_path / "store" / "bindings.jsonl").unlink()
    log = tmp_path / "store" / "one" / "000001.jsonl"
    log.unlink()
    log.symlink_to(log)
    async with opened(tmp_path) as store:
        assert await store.resolve("k:two") == "two"
        assert await store.resolve("k:one") is None
