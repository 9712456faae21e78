"""An erasure that was killed in the middle: nobody sees the half of a session, and the next store ends it (C20)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kipu.errors import SessionErasedError, SessionNotFoundError
from kipu.stores.jsonl.erasing import _Erasure
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, texts


async def test_an_erasure_is_finished_by_the_next_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill left of an erased session is removed when the store is opened (JL-24, C20)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.put_blob("one", b"big")
        lease = await store.claim("one", owner="a", ttl_s=5)
        assert lease is not None

        def killed(self: object) -> None:
            raise OSError(5, "cut")

        with monkeypatch.context() as patch:
            patch.setattr(_Erasure, "remove_content", killed)
            with pytest.raises(Exception, match="cut"):
                await store.erase("one", lease=lease)
    assert (tmp_path / "store" / "one" / "000001.jsonl").exists()
    async with opened(tmp_path) as store:
        assert not (tmp_path / "store" / "one").exists()
        assert await store.head("one") is None
        with pytest.raises(SessionErasedError):
            await begin(store)


async def test_an_open_store_does_not_show_the_half_of_a_session(tmp_path: Path) -> None:
    """While an erasure by another process is under way, or was killed, the session is not there (JL-24, C20)."""
    async with opened(tmp_path, segment_bytes=300) as store:
        await begin(store)
        await fill(store, 4)
        assert len(await texts(store)) == 5
        folder = tmp_path / "store" / "one"
        tombstones = tmp_path / "store" / ".tombstones"
        tombstones.mkdir()
        (tombstones / "one").write_bytes(b"{}\n")
        (folder / "erasing").write_bytes(b"")
        segments = sorted(folder.glob("0*.jsonl"))
        assert len(segments) > 2
        os.unlink(segments[-1])
        os.unlink(log_of(tmp_path))
        with pytest.raises(SessionNotFoundError):
            await store.read("one")
        assert await store.head("one") is None
        with pytest.raises((SessionNotFoundError, SessionErasedError)):
            await fill(store, 1)


async def test_a_damaged_blob_is_written_anew(tmp_path: Path) -> None:
    """Who stores a value again whose file was damaged gets it back whole (C16, C2)."""
    async with opened(tmp_path) as store:
        await begin(store)
        digest = await store.put_blob("one", b"big value")
        (tmp_path / "store" / "one" / "blobs" / digest).write_bytes(b"other")
        assert await store.put_blob("one", b"big value") == digest
        assert await store.get_blob("one", digest) == b"big value"
        assert await store.verify() == []


async def test_a_store_that_may_not_be_written_leaves_a_half_erased_session_as_it_is(tmp_path: Path) -> None:
    """Who opens a folder of a newer version ends no erasure in it: nothing there is changed (JL-2, JL-24)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await begin(store, "two")
    folder = tmp_path / "store"
    (folder / ".tombstones").mkdir()
    (folder / ".tombstones" / "one").write_bytes(b"{}\n")
    (folder / "kipu.json").write_text('{"format":999}')
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    async with opened(tmp_path) as store:
        assert await texts(store, "two") == ["begin"]
    assert {path.relative_to(folder) for path in folder.rglob("*")} >= before
    assert log_of(tmp_path).exists()
