"""The folder: its modes, its format, its segments, and what opening it does."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kipu.errors import NewerFormatError, StoreCorruptError, StoreFullError, StoreUrlError
from kipu.ports.store import Binding, Damage, SessionQuery
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record, texts


async def test_folder_is_private_from_the_beginning(tmp_path: Path) -> None:
    """With an open umask every file is 0600 and every folder 0700 (JL-1, situation 78)."""
    before = os.umask(0)
    try:
        async with opened(tmp_path) as store:
            await begin(store)
            await store.put_blob("one", b"data")
            await store.claim("one", owner="me", ttl_s=5)
            await store.bind("k", "one")
            with log_of(tmp_path).open("ab") as file:
                file.write(b"torn")
            await fill(store, 1)
            paths = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
            modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    finally:
        os.umask(before)
    assert modes == {(True, 0o700), (False, 0o600)}


async def test_newer_format_is_read_only_and_stays_as_it_is(tmp_path: Path) -> None:
    """A folder of a newer Kipu can be read and listed; writing is refused with both versions (JL-2, situation 71)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await fill(store, 2)
    (tmp_path / "store" / "kipu.json").write_text('{"format":999}')
    log = log_of(tmp_path).read_bytes()
    async with opened(tmp_path) as store:
        assert await texts(store) == ["begin", "1", "2"]
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["one"]
        assert store.describe().read_only
        with pytest.raises(NewerFormatError) as caught:
            await store.append("one", [record("x")])
        assert (caught.value.found, caught.value.known) == (999, 1)
        with pytest.raises(NewerFormatError):
            await store.drop_index()
    assert log_of(tmp_path).read_bytes() == log


async def test_folder_that_does_not_say_its_format_is_refused(tmp_path: Path) -> None:
    """A format file that makes no sense is an error, never a new store (JL-2, A50)."""
    async with opened(tmp_path) as store:
        await begin(store)
    (tmp_path / "store" / "kipu.json").write_text("{oops")
    with pytest.raises(StoreCorruptError):
        async with opened(tmp_path):
            pass
    assert (tmp_path / "store" / "kipu.json").read_text() == "{oops"


async def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A URL that names a file is an error, and the file stays (A50)."""
    (tmp_path / "store").write_bytes(b"mine")
    with pytest.raises(StoreUrlError):
        async with opened(tmp_path):
            pass
    assert (tmp_path / "store").read_bytes() == b"mine"


async def test_log_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    """Above its size a segment is followed by the next; reads cross the border both ways (JL-3, B52, B6)."""
    async with opened(tmp_path, segment_bytes=4096) as store:
        await begin(store)
        await fill(store, 60)
        numbers = [str(number) for number in range(1, 61)]
        assert log_of(tmp_path, segment=2).exists()
        assert await texts(store, after=1) == numbers
        for after in range(0, 55, 7):
            assert await texts(store, after=after + 1, limit=5) == numbers[after : after + 5]
            assert await texts(store, until=after + 6, backwards=True, limit=3) == numbers[after + 2 : after + 5][::-1]
    async with opened(tmp_path, segment_bytes=4096) as store:
        assert await texts(store, after=1) == numbers
        assert await texts(store, backwards=True, limit=60) == numbers[::-1]
        assert await store.verify() == []


async def test_segments_are_numbers_and_not_names(tmp_path: Path) -> None:
    """More digits than six are read in their order (JL-3, situation 59)."""
    async with opened(tmp_path, segment_bytes=4096) as store:
        await begin(store)
        await fill(store, 60)
    (names := sorted((tmp_path / "store" / "one").glob("*.jsonl"))).reverse()
    for number, path in enumerate(names):
        path.rename(path.with_name(f"{1_000_001 - number}.jsonl"))
    async with opened(tmp_path, segment_bytes=4096) as store:
        assert await texts(store, after=1) == [str(number) for number in range(1, 61)]


async def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes a few bytes at a time still makes whole lines (JL-12, situation 72)."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:100])))
    async with opened(tmp_path) as store:
        await begin(store)
        await store.append("one", [record("x" * 3000)])
        assert [len(text) for text in await texts(store)] == [5, 3000]
        assert await store.verify() == []


@pytest.mark.parametrize("call", ["write", "fdatasync"])
async def test_refused_append_leaves_the_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A full disk is a typed error, the file is what it was, and the next append follows it (JL-12, A52, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await fill(store, 3)
        before = log_of(tmp_path).read_bytes()

        def full(fd: int, data: bytes = b"") -> int:
            if call == "write":
                monkeypatch.undo()
                os.write(fd, bytes(data[:50]))
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, call, full)
        with pytest.raises(StoreFullError):
            await store.append("one", [record("lost")])
        monkeypatch.undo()
        assert log_of(tmp_path).read_bytes() == before
        assert await texts(store) == ["begin", *"123"]
        await store.append("one", [record("next")])
        assert await texts(store) == ["begin", *"123", "next"]


async def test_buffered_store_syncs_after_ten_events_or_an_urgent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss window is 10 events over all sessions, and nothing urgent (JL-13, B53)."""
    synced: list[int] = []
    real = os.fdatasync

    def counting(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counting)
    async with opened(tmp_path, durability="buffered") as store:
        await begin(store)
        await begin(store, "two")
        await fill(store, 4)
        await fill(store, 3, "two")
        assert synced == []
        await fill(store, 1)
        assert len(synced) == 1
        await store.append("two", [record("call", urgent=True)])
        assert len(synced) == 2
        assert "10 events" in store.describe().loss_window


async def test_bindings_survive_a_torn_line_and_keep_it(tmp_path: Path) -> None:
    """Half a line at the end of the bindings is kept aside, and the keys before it lead where they led (JL-14, JL-16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.bind("k", "one")
    with (tmp_path / "store" / "bindings.jsonl").open("ab") as file:
        file.write(b'{"key":"k","sess')
    async with opened(tmp_path) as store:
        assert await store.resolve("k") == "one"
        await store.bind("l", "one")
        assert await store.resolve("l") == "one"
        assert [(damage.reason, damage.length) for damage in await store.verify()] == [("torn", 16)]


@pytest.mark.parametrize("happened", [True, False])
async def test_binding_intent_counts_only_with_its_batch(tmp_path: Path, happened: bool) -> None:
    """A writer that died between intent and end bound the key if its batch is in the log, else not (JL-16, A52)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.bind("k", "one")
        await begin(store, "two")
        await store.append("two", [record("moves")], bind=Binding("k", "one"))
    bindings, log = tmp_path / "store" / "bindings.jsonl", log_of(tmp_path, "two")
    lines = bindings.read_bytes().splitlines(keepends=True)
    assert b"intent" in lines[-2]
    bindings.write_bytes(b"".join(lines[:-1]))
    if not happened:
        log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    async with opened(tmp_path) as store:
        assert await store.resolve("k") == ("two" if happened else "one")


async def test_blob_that_changed_is_reported(tmp_path: Path) -> None:
    """A blob whose bytes are not what its name says is damage (C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        digest = await store.put_blob("one", b"data")
        (tmp_path / "store" / "one" / "blobs" / digest).write_bytes(b"other")
        found = await store.verify()
        assert found == [Damage("one", "checksum", f"one/blobs/{digest}", 0, detail="not what its name says")]
