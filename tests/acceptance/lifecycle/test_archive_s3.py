"""Archives in an object store: a real S3-compatible server in this process, and obstore's own stores (B48)."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from kipu.archive.archive_reader import ArchiveReader
from kipu.archive.object_place import ObjectPlace
from kipu.archive.place import open_place
from kipu.errors import ArchiveDamagedError, ArchiveError, ArchiveMissingError, ArchivePlaceError
from kipu.manager.lifecycle.archive_backed import archive_backed
from kipu.manager.lifecycle.session_archives import SessionArchives
from kipu.stores.wrapper import innermost
from tests.acceptance.lifecycle.sessions import STORES, archive, filled, opened, whole

obstore = pytest.importorskip("obstore")
BUCKET = "kipu-archives"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Give the address of a server that speaks S3, with a bucket in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urlopen(Request(f"{url}/{BUCKET}", method="PUT")).close()
        yield url
        server.stop()


@pytest.fixture
def place(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of a folder in the bucket, reached by the usual variables."""
    values = {"ENDPOINT_URL": s3, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
    for name, value in {**values, "ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return f"s3://{BUCKET}/some/folder"


@pytest.mark.parametrize("kind", STORES)
async def test_a_session_goes_to_s3_and_comes_back(tmp_path: Path, place: str, kind: str) -> None:
    """An archive in a bucket is written in parts, read in place, verified, and removed when the session is back (B48)."""
    async with opened(tmp_path, kind) as manager:
        session_id = await filled(manager, events=30)
        big = bytes(range(256)) * (80_000)  # more than one part of an upload, even compressed
        digest = await manager.store.put_blob(session_id, random.Random(7).randbytes(len(big)))
        before = await whole(manager, session_id)
        await archive(manager, session_id, to=place)
    async with opened(tmp_path, kind) as manager:
        head = await manager.store.head(session_id)
        assert head is not None
        assert head.archive is not None
        assert head.archive["place"] == place
        assert (await whole(manager, session_id))[: len(before)] == before
        assert len(await manager.store.get_blob(session_id, digest)) == len(big)
        assert await manager.store.verify() == []
        await SessionArchives(manager).unarchive(session_id)
        assert (await whole(manager, session_id))[: len(before)] == before
        assert len(await innermost(manager.store).blobs(session_id)) == 2
        with pytest.raises(ArchiveMissingError):
            await archive_backed(manager.store).place(place).size(head.archive["name"])


async def test_a_lost_store_gets_its_sessions_back_from_s3(tmp_path: Path, place: str) -> None:
    """The file is found by the session's id among the others of the bucket's folder (A56, B48)."""
    (tmp_path / "new").mkdir()
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager, events=30)
        before = await whole(manager, session_id)
        for name in (session_id, await filled(manager, events=5, key="cli:other")):
            await archive(manager, name, to=place)
    async with opened(tmp_path / "new", "sqlite") as manager:
        await SessionArchives(manager).unarchive(session_id, source=place)
        assert (await whole(manager, session_id))[: len(before)] == before
        assert len(await open_place(place).names("sess_")) == 1


async def test_a_bucket_that_is_away_keeps_the_session_in_its_store(tmp_path: Path, place: str) -> None:
    """Where the object store cannot be written, the session stays readable in its store (C16)."""
    async with opened(tmp_path, "sqlite") as manager:
        session_id = await filled(manager, events=5)
        with pytest.raises(ArchiveError):
            await archive(manager, session_id, to="s3://there-is-no-such-bucket/x")
        assert len(await whole(manager, session_id)) >= 7
        head = await manager.store.head(session_id)
        assert head is not None
        assert head.offloaded_seq == 0


async def test_an_upload_that_is_broken_off_is_no_object(place: str) -> None:
    """An error while an archive is written leaves no object, and the one of that name before it as it was (A52)."""
    target = open_place(place)
    async with target.writing("thing") as sink:
        await sink.write(b"old")

    async def break_off() -> None:
        async with target.writing("thing") as sink:
            await sink.write(b"x" * 20_000_000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await break_off()
    assert await target.read("thing", start=0, length=10) == b"old"
    assert await target.remove("thing")
    assert not await target.remove("thing")


async def test_an_object_that_is_no_archive_is_refused(place: str) -> None:
    """Some other object under an archive's name is a typed error (C16)."""
    target = open_place(place)
    name = "s1.5.0123456789ab.kipu.zst"
    async with target.writing(name) as sink:
        await sink.write(b"not an archive at all" * 20)
    with pytest.raises(ArchiveDamagedError):
        await ArchiveReader.open(target, name, session_id="s1")


@pytest.mark.parametrize("url", ["memory:///", "file-store"])
async def test_obstores_own_stores_keep_archives_too(tmp_path: Path, url: str) -> None:
    """The local and memory stores of obstore do what a place does (B48)."""
    from obstore.store import LocalStore, MemoryStore

    store = MemoryStore() if url == "memory:///" else LocalStore(str(tmp_path))
    target = ObjectPlace(store, url=url)
    async with target.writing("thing") as sink:
        await sink.write(b"some")
        await sink.write(b"thing")
    assert await target.size("thing") == 9
    assert await target.read("thing", start=4, length=5) == b"thing"
    with pytest.raises(ArchiveMissingError):
        await target.read("other", start=0, length=1)


@pytest.mark.parametrize("url", ["", "nowhere:x", "file://host/x", "ftp://host/x"])
def test_a_place_that_is_none_is_refused(url: str) -> None:
    """What names neither a folder nor an object store is refused with what would be one (B48)."""
    with pytest.raises(ArchivePlaceError):
        open_place(url)
