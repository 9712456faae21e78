"""A folder that several machines share: where its index is, what is said of its locks, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kipu import UserMessageEvent
from kipu.errors import NetworkFileSystemError, StoreUrlError
from kipu.ports.store import SessionQuery
from kipu.stores import file_system
from kipu.stores.file_system import mount_of, sync_ms
from kipu.stores.jsonl.layout import local_index_folder
from kipu.stores.jsonl.lock import locks_fail
from kipu.stores.store_files import StoreFiles
from kipu.wiring import open_manager, open_store
from tests.unit.stores.jsonl.kit import begin, fill, opened, texts

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
nas:/a /shared/a nfs4 rw,vers=4.2,proto=tcp,local_lock=none 0 0
nas:/b /shared/b nfs rw,vers=3,nolock,local_lock=all 0 0
//nas/c /shared/c cifs rw,vers=3.1.1,nobrl 0 0
//nas/d /shared/d smb3 rw,vers=3.1.1 0 0
ada@nas:/e /shared/e fuse.sshfs rw,user_id=0 0 0
mountpoint-s3 /shared/f fuse rw,user_id=0 0 0
hostshare /shared/g 9p rw,trans=virtio 0 0
shared /shared/h virtiofs rw 0 0
nas:/i /shared/i nfs4 rw,local_lock=flock 0 0
bindfs /shared/j fuse rw,default_permissions 0 0
"""
REACH = {
    "a": ("nfs4", "machines"), "b": ("nfs", "machine"), "c": ("cifs", "machine"), "d": ("smb3", "machines"),
    "e": ("fuse.sshfs", "machine"), "f": ("fuse.mountpoint-s3", "machine"), "g": ("9p", "machine"), "h": ("virtiofs", "machine"),
    "i": ("nfs4", "machine"), "j": ("fuse", "machine"),
}  # fmt: skip


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a mount table that a test may write."""
    table = tmp_path / "mounts"
    table.write_text(MOUNTS)
    monkeypatch.setattr(file_system, "_MOUNTS", str(table))
    return table


@pytest.mark.parametrize("name", REACH)
def test_mount_tells_how_far_locks_reach(mounts: Path, name: str) -> None:
    """By the kind and the options of a mount it is known whether a lock holds off other machines (JL-31, B59)."""
    mount = mount_of(f"/shared/{name}/store")
    assert mount is not None
    assert (mount.kind, mount.lock_reach) == REACH[name]
    assert mount_of("/elsewhere") == file_system.Mount("/dev/vda", "/", "ext4", frozenset({"rw", "relatime"}))


async def test_network_folder_keeps_its_index_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network file system the index is in the local cache, and that and what locks are worth is said (JL-26, JL-31, B59)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with opened(tmp_path, kind_of=lambda _: "nfs4") as store:
        await begin(store)
        notes = " ".join(store.describe().notes)
        assert "nfs4" in notes
        assert "between machines" in notes
        assert [head.session_id for head in (await store.list(SessionQuery())).items] == ["one"]
    assert not (tmp_path / "store" / "index.sqlite").exists()
    assert list((tmp_path / "cache").rglob("index.sqlite"))
    async with opened(tmp_path, kind_of=lambda _: "fuse.sshfs") as store:
        assert "this machine alone" in " ".join(store.describe().notes)
    with pytest.raises(NetworkFileSystemError):
        async with opened(tmp_path, kind_of=lambda _: "nfs4", network="refuse"):
            pass


async def test_index_is_where_it_is_asked_for(tmp_path: Path) -> None:
    """`?index=` names the folder of the indexes; made anew there it knows all, and two stores do not share one (JL-32, B59)."""
    urls = [f"jsonl:///{tmp_path}/{name}?index={tmp_path}/indexes" for name in ("one", "two")]
    for number, url in enumerate(urls):
        async with await open_manager(url) as manager:
            session = await manager.get_or_create("team:1")
            await session.add_event(UserMessageEvent(content=f"hello {number}"))
            await manager.catch_up_index()
    assert len(list((tmp_path / "indexes").glob("*/index.sqlite"))) == 2
    assert not list((tmp_path / "one").glob("index.sqlite*"))
    assert StoreFiles("jsonl", tmp_path / "one", index=f"{tmp_path}/indexes").in_use() is False
    shutil.rmtree(tmp_path / "indexes")
    async with await open_manager(urls[1]) as manager:
        assert "whoever opens" in " ".join(manager.store.describe().notes)
        await manager.catch_up_index()
        assert len((await manager.search("hello")).items) == 1


async def test_index_that_is_on_a_network_too_is_refused(tmp_path: Path, mounts: Path) -> None:
    """An index in a folder that is on a network file system too is refused, and nothing made there (JL-32, B59)."""
    mounts.write_text(f"{MOUNTS}nas:/home {tmp_path}/home nfs4 rw 0 0\n")
    with pytest.raises(StoreUrlError, match="name a local folder"):
        await open_store(f"jsonl:///{tmp_path}/store?index={tmp_path}/home/indexes")
    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "store").exists()


def test_index_of_another_server_is_another_one(tmp_path: Path, mounts: Path) -> None:
    """A folder of another server that is mounted at the same place has an index of its own (JL-32, B59)."""
    folders = set()
    for server in ("nas", "other"):
        mounts.write_text(f"/dev/vda / ext4 rw 0 0\n{server}:/x {tmp_path} nfs4 rw 0 0\n")
        folders.add(local_index_folder(str(tmp_path / "store"), kind="nfs4", index="/var/cache/kipu", environment={}))
    assert len(folders) == 2


@pytest.mark.parametrize("kind", ["fuse.s3fs", "fuse.rclone", "fuse.mountpoint-s3", "davfs"])
async def test_folder_of_objects_is_refused(tmp_path: Path, kind: str) -> None:
    """Where files are whole objects a log is not begun unless that is asked for (JL-33, B59)."""
    with pytest.raises(NetworkFileSystemError, match="object store"):
        async with opened(tmp_path, kind_of=lambda _: kind):
            pass
    assert not list(tmp_path.iterdir())
    async with opened(tmp_path, kind_of=lambda _: kind, network="allow", index=str(tmp_path / "indexes")) as store:
        await begin(store)


@pytest.mark.parametrize(("kind", "is_refused"), [("nfs", True), ("fuse", True), ("fuse.sshfs", True), ("ext4", False)])
async def test_folder_whose_locks_do_not_hold_is_refused(tmp_path: Path, kind: str, is_refused: bool) -> None:
    """Where it is not known what a file system does, its locks are tried, and without them it is refused (JL-33, B59)."""
    settings = {"index": str(tmp_path / "indexes"), "kind_of": lambda _: kind, "try_locks": lambda _: "it has no locks"}
    if is_refused:
        with pytest.raises(NetworkFileSystemError, match="no locks"):
            async with opened(tmp_path, **settings):
                pass
    else:
        async with opened(tmp_path, **settings) as store:
            await begin(store)


def test_locks_and_syncs_are_tried_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that hold are told from locks that are given twice, syncing is timed, and no file is left (JL-33, B59)."""
    import fcntl

    assert locks_fail(str(tmp_path)) == ""
    assert 0 < sync_ms(str(tmp_path)) < 10_000
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lambda *_: None)
        assert "second one" in locks_fail(str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert "no locks" in locks_fail(str(tmp_path))
    assert not list(tmp_path.iterdir())


async def test_index_elsewhere_goes_with_its_store(tmp_path: Path) -> None:
    """A store that is moved takes its index along, and one that is destroyed leaves none behind (JL-32)."""
    index = str(tmp_path / "indexes")
    async with opened(tmp_path, index=index) as store:
        await begin(store)
    files = StoreFiles("jsonl", tmp_path / "store", index=index)
    files.move_to(tmp_path / "moved")
    (folder,) = (tmp_path / "indexes").iterdir()
    assert folder.name == Path(local_index_folder(str(tmp_path / "moved"), kind="", index=index, environment={})).name
    StoreFiles("jsonl", tmp_path / "moved", index=index).destroy()
    assert not list(folder.iterdir())


def _fuse_mounts() -> Iterator[str]:
    if os.path.exists("/dev/fuse") and os.access("/dev/fuse", os.W_OK):
        yield from (name for name in ("bindfs",) if shutil.which(name) and shutil.which("fusermount3"))


@pytest.mark.parametrize("program", list(_fuse_mounts()) or [pytest.param("", marks=pytest.mark.skip("no FUSE here"))])
async def test_store_on_a_real_fuse_mount_serves_two_processes(tmp_path: Path, program: str) -> None:
    """On a FUSE file system that is mounted for the test two processes make one gapless log (JL-33, B59, C13)."""
    (tmp_path / "source").mkdir()
    (tmp_path / "mount").mkdir()
    done = subprocess.run(
        [program, tmp_path / "source", tmp_path / "mount"], check=False, capture_output=True, timeout=20
    )
    if done.returncode:
        pytest.skip(f"it cannot be mounted: {done.stderr.decode()[:200]}")
    try:
        mount = mount_of(str(tmp_path / "mount" / "store"))
        assert mount is not None
        assert mount.kind.startswith("fuse")
        url = f"jsonl:///{tmp_path}/mount/store"
        writers = [subprocess.Popen([sys.executable, "-c", _WRITER, url, name]) for name in "ab"]
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
        async with await open_manager(url) as manager:
            events = await (await manager.get_or_create("team:1")).get_full_history()
        assert [event.seq for event in events] == list(range(1, 42))
    finally:
        subprocess.run(["fusermount3", "-u", tmp_path / "mount"], check=False, capture_output=True, timeout=20)


_WRITER = """
import sys
from kipu import UserMessageEvent, blocking
with blocking.open_manager(sys.argv[1]) as manager:
    for number in range(20):
        manager.receive("team:1", UserMessageEvent(content=f"{sys.argv[2]} {number}"))
"""


async def test_lines_of_another_machine_are_seen(tmp_path: Path) -> None:
    """Two machines with an index of their own each see what the other appends to the shared log, by reading and by listing (JL-26, B59)."""
    here = {"kind_of": lambda _: "nfs4", "index": str(tmp_path / "here")}
    there = {"kind_of": lambda _: "nfs4", "index": str(tmp_path / "there")}
    async with opened(tmp_path, **here) as one, opened(tmp_path, **there) as two:
        await begin(one)
        await fill(two, 2)
        assert await texts(one) == ["begin", "1", "2"]
        await begin(two, "two")
        assert sorted(head.session_id for head in (await one.list(SessionQuery())).items) == ["one", "two"]
