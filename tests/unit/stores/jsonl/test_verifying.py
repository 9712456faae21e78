"""Looking over a store in which something cannot be read at all: that is reported, and everything else is looked at too."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kipu.errors import StoreUnavailableError
from kipu.ports.store import SessionQuery
from kipu.testing.faults.file_damage import Change, change_file
from tests.unit.stores.jsonl.kit import begin, fill, log_of, opened, record, texts

BLOB = b"a big value"
DIGEST = hashlib.sha256(BLOB).hexdigest()


@pytest.mark.parametrize(
    ("name", "session_id", "where"),
    [
        (f"one/blobs/{DIGEST}", "one", f"one/blobs/{DIGEST}"),
        ("one/lease", "one", "one"),
        ("one/000001.jsonl", "one", "one"),
        ("one/quarantine/000001.jsonl-000000000000-1.bytes", "one", None),
        ("bindings.jsonl", None, "bindings.jsonl"),
        (".quarantine/bindings.jsonl-000000000000-1.bytes", None, None),
    ],
    ids=["blob", "lease", "log", "quarantine", "bindings", "store's quarantine"],
)
async def test_what_cannot_be_read_is_one_damage_among_others(
    name: str, session_id: str | None, where: str | None, tmp_path: Path
) -> None:
    """`verify` names it as unreadable, and still finds what is wrong with another session (C16, A53)."""
    async with opened(tmp_path) as store:
        for each in ("one", "two"):
            await begin(store, each)
            await fill(store, 3, each)
            await store.put_blob(each, BLOB)
            await store.bind(f"k:{each}", each)
        await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
    path = tmp_path / "store" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(path)  # as a sector that cannot be read: opening it is an error of the system, for root too
    log = log_of(tmp_path, "two")
    log.write_bytes(log.read_bytes().replace(b'"content":"2"', b'"content":"x"'))
    async with opened(tmp_path) as store:
        found = await store.verify()
        unreadable = [(damage.session_id, damage.where) for damage in found if damage.reason == "unreadable"]
        assert unreadable == [(session_id, where or name)]
        assert [damage.session_id for damage in found if damage.reason == "checksum"] == ["two"]


_NO_FILES: list[Callable[[Path], object]] = [os.mkfifo, lambda path: path.symlink_to("/dev/zero")]


@pytest.mark.parametrize("put", _NO_FILES, ids=["pipe", "device"])
@pytest.mark.parametrize(
    ("name", "session_id"),
    [
        ("one/000001.jsonl", "one"),
        ("one/floor.json", "one"),
        ("one/lease", "one"),
        (f"one/blobs/{DIGEST}", "one"),
        ("one/quarantine/000001.jsonl-000000000000-1.bytes", "one"),
        ("bindings.jsonl", None),
    ],
)
async def test_what_is_no_file_is_not_waited_for(
    name: str, session_id: str | None, put: Callable[[Path], object], tmp_path: Path
) -> None:
    """A pipe or a device in a file's place costs that file: nothing blocks, and the rest is listed and read (JL-35, A53, C16)."""
    async with opened(tmp_path) as store:
        for each in ("one", "two"):
            await begin(store, each)
            await store.put_blob(each, BLOB)
        await store.bind("k:one", "one")
        await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
    path = tmp_path / "store" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    put(path)
    async with asyncio.timeout(60), opened(tmp_path) as store:
        assert {head.session_id for head in (await store.list(SessionQuery())).items} == {"one", "two"}
        assert [(each.session_id, each.reason) for each in await store.verify()] == [(session_id, "unreadable")]
        assert await texts(store, "two") == ["begin"]


@pytest.mark.parametrize("put", _NO_FILES, ids=["pipe", "device"])
async def test_pipe_or_device_in_the_place_of_the_notes_for_followers_holds_nobody_up(
    put: Callable[[Path], object], tmp_path: Path
) -> None:
    """They are a hint: appends beside another writer are acknowledged without them (JL-23, C16)."""
    put(tmp_path / "changes")
    (tmp_path / "store").mkdir()
    (tmp_path / "changes").rename(tmp_path / "store" / "changes")
    async with asyncio.timeout(60), opened(tmp_path) as store, opened(tmp_path, name="other") as other:
        await begin(store)
        await other.append("one", [record("1")])
        assert await texts(store) == ["begin", "1"]


@pytest.mark.parametrize("put", _NO_FILES, ids=["pipe", "device"])
async def test_store_whose_format_is_no_file_is_refused_at_once(put: Callable[[Path], object], tmp_path: Path) -> None:
    """Opening it is an error that names it, and nobody waits (JL-2, C16)."""
    (tmp_path / "store").mkdir()
    put(tmp_path / "store" / "kipu.json")
    with pytest.raises(StoreUnavailableError, match="regular file"):
        async with asyncio.timeout(60), opened(tmp_path):
            pass


@pytest.mark.parametrize("tail", [b"\0" * 600, b'{"key":"k:three","ses'], ids=["zeros", "torn"])
async def test_torn_end_of_the_bindings_is_reported_before_it_is_moved(tail: bytes, tmp_path: Path) -> None:
    """Keys may be gone with it: `verify` says so where it stands, changes nothing, and later says where it is (JL-14, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.bind("k:one", "one")
    path = tmp_path / "store" / "bindings.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    async with opened(tmp_path) as store:
        (found,) = await store.verify()
        assert (found.session_id, found.reason, found.offset, found.length) == (None, "torn", len(whole), len(tail))
        assert path.read_bytes() == whole + tail
        await store.bind("k:two", "one")
        (found,) = await store.verify()
        assert (found.reason, found.offset, found.length) == ("torn", len(whole), len(tail))
        assert found.where.startswith(".quarantine/")


@pytest.mark.parametrize(
    "change", [lambda data: data.replace(b"\n", b"\r\n"), lambda data: b"\xef\xbb\xbf" + data], ids=["CRLF", "BOM"]
)
async def test_what_a_tool_for_text_did_to_the_store_costs_nothing(change: Change, tmp_path: Path) -> None:
    """Line ends and a byte order mark are passed over in every file of text, so that keys lead where they led (A53, C16)."""
    async with opened(tmp_path) as store:
        await begin(store)
        await store.bind("k:one", "one")
        await store.bind("k:two", "one")
    for name in ("kipu.json", "bindings.jsonl", "one/000001.jsonl"):
        change_file(tmp_path / "store" / name, change)
    async with opened(tmp_path) as store:
        assert [await store.resolve(key) for key in ("k:one", "k:two")] == ["one", "one"]
        assert await store.verify() == []
        lease = await store.claim("one", owner="h/b/1/1/w", ttl_s=15)
        assert lease is not None
        await store.erase("one", lease=lease)
        assert b"k:one" not in (tmp_path / "store" / "bindings.jsonl").read_bytes()
